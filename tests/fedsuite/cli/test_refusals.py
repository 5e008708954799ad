"""What no run can do, or what would do nothing, is refused at once with one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fedsuite.cli.main import main
from fedsuite.config import RunConfig
from fedsuite.core.settings import RunFailed, UserError, spell
from fedsuite.engines import start
from fedsuite.records.folder import find_run

CONFIGS = Path(__file__).parents[3] / "sim_configs"
LONG = "x" * 300
CONNECTION = '[superlink.here]\naddress = "127.0.0.1:8000"\ninsecure = true\n'


@pytest.fixture(autouse=True)
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedsuite.engines.ray.prepare", nullcontext)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(CONNECTION)
    Path("adam.toml").write_text('optimizer = "adam"\nmomentum = 0.9\n')
    Path("file").write_text("")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["run", "fedavg", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("fedsuite: ") and not Path("runs").exists()
    return captured.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["momentum=0.9", "optimizer=adam"], "momentum=0.9 has no effect with optimizer=adam"),
        (["-f", "adam.toml", "momentum=0.9"], "momentum=0.9 has no effect with optimizer=adam"),
        (["-f", "adam.toml", "lr-decay=1"], "lr-decay=1 has no effect with lr-schedule=constant"),
        (["freeloaders=-3"], "invalid value '-3' for freeloaders"),
        (["freeloaders=1000000000"], "at least one client must train"),
        ([f"freeloaders={10**22}"], "at least one client must train"),
        ([f"seed={2**63}"], "it must be at most 9223372036854775807 in size"),
        (["local-steps=10000000"], "at most 1000000"),
        (["lr=1e308"], "models are float32"),
        (["server-data=file"], "has no effect in a simulation"),
        (["--gpus", "0.5", "--engine", "inline"], "--gpus 0.5 has no effect on the engine inline"),
        (["--gpus", "0.5", "device=cpu"], "--gpus 0.5 has no effect with device=cpu"),
        (["--nodes", "5000"], "invalid value '5000' for --nodes: at most 1000 are possible."),
        (["--nodes", "9" * 5000], "is too large"),
        (["--nodes", "²"], "'²' is not a whole number of at least 1"),
        (["--name", LONG], "it has 300 bytes, and a folder's name at most 255"),
        (["--name", "a\nb"], "invalid value 'a\\nb' for run-name"),
        (["--name", "-x"], "invalid value '-x' for run-name"),
        ([f"results-dir={LONG}"], "cannot be made: File name too long"),
        (["results-dir=" + "a/" * 3000], "cannot be made: File name too long"),
        (["results-dir=file"], "cannot be made: Not a directory"),
        (["nonsense" * 1000], "nonsense' is not a setting"),
        (["server-data=nowhere", "--superlink", "here"], "for server-data: there is no such file"),
    ],
)
def test_it_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in refused(capsys, *words)


@pytest.mark.parametrize(
    ("algo", "file", "pair", "reset"),
    [
        ("feda4", "feda4_cifar10", "partition=iid", {"dirichlet-alpha": 0.5}),
        ("feda4", "feda4_cifar10", "local-steps=100", {"local-epochs": 1}),
        ("fedbac", "fedbac_mnist", "optimizer=adam", {"momentum": 0.0}),
        ("fedbac", "fedbac_mnist", "partition=iid", {"num-shards": 0}),
        ("fedavg", "adam", "lr=0.01", {"momentum": 0.0}),
    ],
)
def test_the_command_line_wins_over_a_file(
    monkeypatch: pytest.MonkeyPatch, algo: str, file: str, pair: str, reset: dict[str, Any]
) -> None:
    """What the file's settings lose by it is not the user's mistake."""
    started: list[RunConfig] = []

    def note(config: RunConfig, *how: object) -> Path:
        started.append(config)
        raise RunFailed("noted")

    monkeypatch.setattr(start, "start_run", note)
    path = Path(f"{file}.toml") if file == "adam" else CONFIGS / f"{file}.toml"
    assert main(["run", algo, "-f", str(path), pair]) == 1
    key, value = pair.split("=")
    flat = started[0].flat()
    assert spell(flat[key]) == value and {k: flat[k] for k in reset} == reset


@pytest.mark.parametrize(
    ("there", "asked", "expected"),
    [
        (0, "0.5", "invalid value '0.5' for --gpus: PyTorch sees no GPU here."),
        (1, "2", "invalid value '2' for --gpus: PyTorch sees 1 GPU here. Use at most 1."),
    ],
)
def test_gpus_that_are_not_there_are_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    there: int,
    asked: str,
    expected: str,
) -> None:
    monkeypatch.setattr(start, "gpu_count", lambda: there)
    assert expected in refused(capsys, "--gpus", asked)


def test_gpus_that_are_there_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsuite.config import parse

    monkeypatch.setattr(start, "gpu_count", lambda: 1)
    start.check_gpus(parse({}), "ray", 0.25)
    start.check_gpus(parse({"device": "cpu"}), "inline", 0.0)


def test_a_deployed_run_is_not_resumed_by_an_engine(
    capsys: pytest.CaptureFixture[str], experiment: Callable[..., Path]
) -> None:
    folder = experiment(num_rounds=1)
    (folder / "summary.json").unlink()
    document = json.loads((folder / "config.json").read_text())
    document["meta"] |= {"engine": "deployed"}
    (folder / "config.json").write_text(json.dumps(document))
    assert main(["resume", str(folder), "--engine", "inline"]) == 2
    assert "ran on deployed nodes. Resume it there" in capsys.readouterr().err


@pytest.mark.parametrize("name", [LONG, "a\0b", "~nobody/x"])
def test_a_name_that_no_run_can_have_is_not_found(name: str) -> None:
    with pytest.raises(UserError, match="There is no run '"):
        find_run(name, "runs")


def test_a_home_folder_that_is_not_there_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data-root=~nobody-of-this-name/data", "dataset=mnist"]
    assert "~nobody-of-this-name" in refused(capsys, *words)
