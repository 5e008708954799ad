"""What a person types and reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsuite.cli.main import main, read_settings
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder

SMALL = ["num-clients=3", "num-rounds=2", "model=mlp"]


@pytest.fixture(autouse=True)
def stand_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def say(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(list(words)) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_a_run_shows_rounds_a_plot_and_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    out = say(capsys, "run", "fedavg", *SMALL, "--engine", "inline", "--name", "mine")
    assert re.search(r"round 2/2 +accuracy 0\.\d{4} .*s/round", out)
    assert "accuracy by round" in out and "finished" in out
    assert str(Path("runs/mine").absolute()) in out.replace("\n", "")


def test_settings_may_stand_before_and_after_options(capsys: pytest.CaptureFixture[str]) -> None:
    say(
        capsys,
        "run",
        "fedavg",
        "num-clients=3",
        "--engine",
        "inline",
        "--name",
        "x",
        "num-rounds=1",
        "model=mlp",
    )
    config = read_document(Path("runs/x/config.json"))
    assert (config["num-clients"], config["num-rounds"]) == (3, 1)


def test_later_settings_win_over_the_file() -> None:
    Path("x.toml").write_text('num-rounds = 5\nlr = 0.3\ndata-root = "data"\n')
    values = read_settings(["x.toml"], ["lr=0.1", "lr=0.2"])
    assert values["num-rounds"] == 5 and values["lr"] == "0.2"
    assert values["data-root"] == str(Path("data").absolute())


def test_a_run_can_be_shown_and_listed_later(capsys: pytest.CaptureFixture[str]) -> None:
    say(capsys, "run", "local", *SMALL, "--engine", "inline", "--name", "alone")
    shown = say(capsys, "show", "alone")
    assert "personal" in shown and "fedsuite run local" in shown
    assert "alone" in say(capsys, "list", "runs")
    assert "is done" in say(capsys, "resume", "alone")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "fedavgg"], "Did you mean 'fedavg'?"),
        (["run", "fedavg", "num-round=3"], "Did you mean 'num-rounds'?"),
        (["run", "fedavg", "dataset=minst"], "Did you mean 'mnist'?"),
        (["run", "fedavg", "model=lstm"], "Model 'lstm'"),
        (["run", "fedavg", "lr=fast"], "lr = 'fast'"),
        (["run", "fedavg", "device=tpu"], "auto, cpu, cuda"),
        (["run", "taco", "kappa=0.7"], "write taco.kappa"),
        (["run", "fedavg", "nonsense"], "KEY=VALUE"),
        (["run", "fedavg", "-f", "none.toml"], "no file 'none.toml'"),
        (["run", "fedavg", "num-clients=5000"], "5000"),
        (["run", "fedavg", "partition=natural"], "natural"),
        (["run", "fedavg", "data-root=nowhere", "dataset=mnist"], "nowhere"),
        (["show", "nothing"], "There is no run 'nothing'"),
        (["partition", "dataset=minst"], "Did you mean 'mnist'?"),
    ],
)
def test_a_mistake_ends_at_once_with_a_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    out = say(capsys, *words, status=2)
    assert expected in out and "Traceback" not in out
    assert not Path("runs").exists()


def test_a_failed_run_returns_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    out = say(capsys, "run", "faulty:ALL", *SMALL, "--engine", "inline", "--name", "bad", status=1)
    assert "nobody is home" in out and "Traceback" in out and "the run failed" in out


def test_a_server_that_fails_at_once_returns_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    words = ["run", "faulty:NO_SERVER", *SMALL, "--engine", "inline", "--name", "bad"]
    out = say(capsys, *words, status=1)
    assert "no room for the server" in out and "Traceback" in out


def test_an_inline_run_leaves_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    say(capsys, "run", "faulty:SOME", *SMALL, "--engine", "inline", "--name", "odd")
    log = Path("runs/odd/run.log").read_text()
    assert "client 1 left out (train): RuntimeError: client 1 lost its disk" in log
    assert "round 2/2" in log


def test_a_round_that_keeps_the_model_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    words = ["run", "faulty:SOME", *SMALL, "min-train-clients=2", "--engine", "inline"]
    assert "fewer than min-train-clients" in say(capsys, *words)


def test_a_results_folder_that_cannot_be_made_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").write_text("")
    for engine in ("inline", "ray"):
        words = ["run", "fedavg", *SMALL, "results-dir=file/runs", "--engine", engine]
        out = say(capsys, *words, status=2)
        assert "results-dir" in out and "Traceback" not in out


def test_how_to_resume_is_said_from_where_the_user_stands(tmp_path: Path) -> None:
    assert RunFolder(Path("runs/mine").absolute()).resume_command == "fedsuite resume mine"
    far = tmp_path / "far" / "mine"
    assert RunFolder(far).resume_command == f"fedsuite resume {far}"


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["run", "fedavg", "--fast"])
    with pytest.raises(SystemExit):
        main(["show", "x", "stray"])


@pytest.mark.parametrize("what", ["algorithms", "datasets", "models", "partitions"])
def test_lists(capsys: pytest.CaptureFixture[str], what: str) -> None:
    sample = {
        "algorithms": "fedprox",
        "datasets": "shakespeare",
        "models": "resnet18",
        "partitions": "pathological",
    }
    assert sample[what] in say(capsys, "list", what)


def test_keys_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    out = say(capsys, "keys")
    assert "fraction-train" in out and "fedprox.zeta" in out and "proximal" in out


def test_a_partition_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    out = say(capsys, "partition", "num-clients=5", "-o", "split.png")
    assert "split " in out and Path("split.png").read_bytes().startswith(b"\x89PNG")


def test_paths_are_taken_from_where_the_user_stands() -> None:
    assert read_settings([], ["results-dir=out"])["results-dir"] == str(Path("out").absolute())
    with pytest.raises(UserError, match="KEY=VALUE"):
        read_settings([], ["=3"])
