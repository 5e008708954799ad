"""What a person types and reads."""

from __future__ import annotations

import json
import platform
import re
import tomllib
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy
import pytest
from run_folders import write_run

from fedsuite.cli import deploy as deploy_commands
from fedsuite.cli import listing
from fedsuite.cli.main import main
from fedsuite.cli.parsing import repeat_options
from fedsuite.cli.run import read_settings
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError
from fedsuite.deploy import certificates
from fedsuite.deploy.federation import Federation, SuperNode
from fedsuite.deploy.up_down_status import Status
from fedsuite.flower import connections
from fedsuite.records.folder import RunFolder

ROOT = Path(__file__).parents[3]
SMALL = ["num-clients=3", "num-rounds=2", "model=mlp"]


@pytest.fixture(autouse=True)
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        (["run", "fedavg", "model=lstm"], "invalid value 'lstm' for model"),
        (["run", "fedavg", "lr=fast"], "invalid value 'fast' for lr: it takes a number."),
        (["run", "fedavg", "device=tpu"], "auto, cpu, cuda"),
        (["run", "taco", "kappa=0.7"], "write taco.kappa"),
        (["run", "taco", "kapa=0.7"], "Did you mean 'taco.kappa'?"),
        (["run", "taco", "fedprox.zeta=1"], "'fedprox.zeta' is a setting of fedprox"),
        (["run", "taco", "-f", "prox.toml"], "'fedprox.zeta' is a setting of fedprox"),
        (["settings", "kapa"], "Did you mean 'taco.kappa'?"),
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
    Path("prox.toml").write_text("[fedprox]\nzeta = 0.1\n")
    out = say(capsys, *words, status=2)
    assert expected in out and "Traceback" not in out
    assert out.startswith("fedsuite: ") and out.count("\n") == 1
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
    say(capsys, "run", "faulty:SOME", *SMALL, "--engine", "inline", "--name", "odd", status=3)
    log = Path("runs/odd/run.log").read_text()
    assert "client 1 left out (train): RuntimeError: client 1 lost its disk" in log
    assert "round 2/2" in log


def test_a_round_that_keeps_the_model_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    words = ["run", "faulty:SOME", *SMALL, "min-train-clients=2", "--engine", "inline"]
    out = say(capsys, *words, status=1)
    assert "round 1: 1 valid replies, fewer than min-train-clients = 2; the model" in out


def test_a_results_folder_that_cannot_be_made_is_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsuite.engines.ray.prepare", nullcontext)
    Path("file").write_text("")
    for engine in ("inline", "ray"):
        words = ["run", "fedavg", *SMALL, "results-dir=file/runs", "--engine", engine]
        out = say(capsys, *words, status=2)
        assert "results-dir" in out and "Traceback" not in out


def test_the_resume_command_is_relative_to_the_current_directory(tmp_path: Path) -> None:
    assert RunFolder(Path("runs/mine").absolute()).resume_command == "fedsuite resume mine"
    far = tmp_path / "far" / "mine"
    assert RunFolder(far).resume_command == f"fedsuite resume {far}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Missing command. Choices: run, resume,"),
        (["rnu"], "Unknown command 'rnu'. Did you mean 'run'?"),
        (["deploy"], "Missing command. Choices: certs,"),
        (["deploy", "stats"], "Did you mean 'status'?"),
        (["run"], "Missing ALGO. See `fedsuite run --help`."),
        (["run", "fedavg", "--fast"], "Unknown option '--fast'."),
        (["run", "fedavg", "--engin", "ray"], "Did you mean '--engine'?"),
        (["run", "fedavg", "--engine", "rya"], "'rya' is not one of 'auto', 'inline', 'ray'."),
        (["run", "fedavg", "--nodes", "0"], "'0' is not a whole number of at least 1."),
        (["run", "fedavg", "--gpus", "-1"], "'-1' is not a number of at least 0."),
        (["run", "fedavg", "--gpus", "two"], "'two' is not a number of at least 0."),
        (["run", "fedavg", "--name"], "'--name' requires an argument. See `fedsuite run --help`."),
        (["show", "x", "stray"], "unexpected extra argument (stray). See `fedsuite show --help`."),
        (["list", "fruits"], "'algorithms', 'configs', 'datasets'"),
        (["deploy", "connect", "hub", "127.0.0.1:8000"], "Missing option '--ca'."),
        (["--fast"], "Unknown option '--fast'."),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    out = say(capsys, *words, status=2)
    assert expected in out
    assert out.startswith("fedsuite: ") and out.count("\n") == 1 and "--help`." in out


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["deploy", "certs", "--help"]])
def test_help_is_plain_text(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    out = say(capsys, *words)
    assert out.startswith("Usage: fedsuite") and "\\[" not in out and "─" not in out


def test_help_explains_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(say(capsys, "run", "--help").split())
    assert "ALGO algorithm, see `fedsuite list algorithms`" in out
    assert "[KEY=VALUE]... settings; later ones win" in out


def test_an_interrupt_ends_with_status_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: str) -> list[tuple[str, str]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "_entries", interrupt)
    assert say(capsys, "list", "models", status=130) == "fedsuite: interrupted\n"


@pytest.mark.parametrize(
    ("words", "repeated"),
    [
        ("f --only a b --jobs 2", "f --only a --only b --jobs 2"),
        ("--only a --only b f", "--only a --only b --only f"),
        ("--only a -- f", "--only a -- f"),
        ("f --only -a b", "f --only -a --only b"),
        ("--only=a b", "--only=a b"),
        ("f --only", "f --only"),
    ],
)
def test_an_option_of_several_values_is_repeated(words: str, repeated: str) -> None:
    assert repeat_options(words.split(), {"--only"}) == repeated.split()


def test_several_values_reach_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def run_suite(*_: object, only: list[str], **__: object) -> int:
        seen.append(only)
        return 0

    monkeypatch.setattr("fedsuite.suites.runner.run_suite", run_suite)
    for words in (["--only", "algo=a", "seed=1"], ["--only", "algo=a", "--only", "seed=1"]):
        say(capsys, "suite", "demo", *words, "--jobs", "1")
    assert seen == [["algo=a", "seed=1"]] * 2


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, second, *others = say(capsys, "--version").splitlines()
    assert first == f"fedsuite {project['version']}"
    assert second == f"python {platform.python_version()}"
    names = [line.split()[0] for line in others]
    assert names == ["flwr", "torch", "numpy", "flwr-datasets", "ray"]
    assert f"numpy {numpy.__version__}" in others


@pytest.mark.parametrize(
    "what", ["algorithms", "configs", "datasets", "models", "partitions", "suites"]
)
def test_lists(capsys: pytest.CaptureFixture[str], what: str) -> None:
    sample = {
        "algorithms": "fedprox",
        "configs": "TACO, Table V, adult with Dirichlet 0.5.",
        "datasets": "shakespeare",
        "models": "resnet18",
        "partitions": "pathological",
        "suites": "Demo: the four papers' methods, FedAvg and FedProx on digits",
    }
    assert sample[what] in say(capsys, "list", what)
    entries = json.loads(say(capsys, "list", what, "--json"))
    assert any(sample[what] in str(value) for entry in entries for value in entry.values())
    assert all(entry["name"] for entry in entries)


def test_suites_are_listed_with_their_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo: six methods, two seeds; at small scale one."""
    line = next(line for line in say(capsys, "list", "suites").splitlines() if "Demo" in line)
    assert "(12 runs, 6 at small scale)" in line
    entries = json.loads(say(capsys, "list", "suites", "--json"))
    (demo,) = [entry for entry in entries if entry["name"] == "demo"]
    assert (demo["runs"], demo["runs_small"]) == (12, 6)


def test_the_state_of_a_federation_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = (SuperNode(0, 9001, {}), SuperNode(1, 9002, {}))
    plan = Federation(tmp_path, "mark", True, False, 8000, 8001, tmp_path, nodes)
    end = datetime(2027, 1, 2, tzinfo=UTC)
    found = Status(plan, {"superlink": True, "node-0": False}, True, 1, end)
    monkeypatch.setattr("fedsuite.deploy.up_down_status.status", lambda _: found)
    said = json.loads(say(capsys, "deploy", "status", "--json", status=1))
    processes = said.pop("processes")
    assert said == {
        "complete": False,
        "connection": "local-deployment",
        "address": "127.0.0.1:8000",
        "tls": True,
        "auth": False,
        "healthy": True,
        "online": 1,
        "nodes": 2,
        "certificate_expires": "2027-01-02T00:00:00+00:00",
    }
    assert [(p["name"], p["running"]) for p in processes] == [
        ("superlink", True),
        ("node-0", False),
    ]
    assert processes[1]["log"] == str(tmp_path / "logs" / "node-0.log")


@pytest.mark.parametrize("command", ["settings", "keys"])
def test_settings_are_explained(capsys: pytest.CaptureFixture[str], command: str) -> None:
    out = say(capsys, command)
    assert "fraction-train" in out and "fedprox.zeta" in out and "proximal" in out
    assert re.search(r"batch-size +16 +integer >= 1 +batch size", out)
    assert re.search(r"lr-decay +0.99 +number > 0, <= 1 +decay per round", out)
    assert re.search(r"optimizer +sgd +sgd, adam +local optimizer", out)
    assert re.search(r"resume +false +true, false +resume the interrupted run", out)


def test_settings_of_one_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    lines = say(capsys, "settings", "fedacg").splitlines()
    keys = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert keys == ["key", "fedacg.lam", "fedacg.beta"]
    assert "avg has no settings of its own" in say(capsys, "settings", "avg")


@pytest.mark.parametrize("word", ["fedprox", "fedprox-tailored", "mu", "fedprox.mu"])
def test_another_name_of_a_setting_is_shown_and_found(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    out = " ".join(say(capsys, "settings", word).split())
    algo = word if word in ("fedprox", "fedprox-tailored") else "fedprox"
    assert f"{algo}.zeta" in out and f"{algo}.mu is the same setting" in out


@pytest.mark.parametrize("key", ["momentum", "optimizer"])
def test_it_is_said_that_an_optimisers_memory_lasts_a_round(
    capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert "round" in say(capsys, "settings", key)


def test_settings_by_a_word_of_key_or_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [line.split()[0] for line in say(capsys, "settings", "lr").splitlines()[1:]]
    assert {"lr", "lr-decay", "server-lr", "apple.p-lr"} <= set(keys)
    assert "batch-size" not in keys
    assert "fedprox.zeta" in say(capsys, "settings", "Proximal")


def test_a_partition_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    out = say(capsys, "partition", "num-clients=5", "-o", "split.png")
    assert "split " in out and Path("split.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").write_text("")
    out = say(capsys, "partition", "num-clients=5", "-o", "file/split.png", status=2)
    assert "fedsuite: invalid value 'file/split.png' for -o: [Errno 17] File exists: 'file'." in out


def test_a_listing_without_runs_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = say(capsys, "list", "runs", "--results-dir", "none")
    assert out == f"There are no runs in {tmp_path / 'none'}.\n"


def test_names_of_runs_are_listed_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "a-run-whose-name-takes-most-of-a-narrow-terminal"
    write_run(Path("runs"), name, "fedavg", [0.5, 0.6])
    assert name in say(capsys, "list", "runs")


def test_defaults_in_help_are_those_of_deployment() -> None:
    """They are written twice, since help must not import Flower or cryptography."""
    assert deploy_commands.CONNECTION == connections.LOCAL
    assert deploy_commands.DAYS == certificates.SERVER_DAYS


def test_paths_are_relative_to_the_current_directory() -> None:
    assert read_settings([], ["results-dir=out"])["results-dir"] == str(Path("out").absolute())
    with pytest.raises(UserError, match="KEY=VALUE"):
        read_settings([], ["=3"])
