"""Trackers: which there are, event files of TensorBoard, and what a failing one does to a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import fedsuite.training.tracking
from fedsuite.config import RunConfig, parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder
from fedsuite.training.base_tracker import ExternalRun, Tracker
from fedsuite.training.loop import check_feasible
from fedsuite.training.tensorboard_tracker import TensorBoard
from fedsuite.training.tracking import add_report, load


class Notebook(ExternalRun):
    """Notes what it is told."""

    name = "notebook"
    told: list[Any] = []

    def open(self, config: RunConfig, files: RunFolder, known_id: str) -> str:
        self.told.append(("open", known_id))
        return "page 7"

    def send(self, number: int, metrics: Mapping[str, float]) -> None:
        self.told.append(number)

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        self.told.append(summary["rounds"])

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        self.told.append((name, *(path.name for path in paths)))

    def end(self, finished: bool) -> None:
        self.told.append(("end", finished))


class Fails(Tracker):
    """Fails from round 1 on."""

    def add_round(self, row: Mapping[str, Any]) -> None:
        if row["round"] > 0:
            raise ConnectionError("the network is down\nfor a while")


@pytest.fixture
def tracked_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Tracker]], None]:
    """Return how to let a class be the tracker that goes by MLflow's name."""

    def replace(tracker: type[Tracker]) -> None:
        monkeypatch.setattr(fedsuite.training.tracking, "find_spec", lambda name: object())
        monkeypatch.setattr(fedsuite.training.tracking, "load", lambda name: tracker)

    return replace


@pytest.fixture
def notebook(tracked_by: Callable[[type[Tracker]], None]) -> list[Any]:
    Notebook.told = []
    tracked_by(Notebook)
    return Notebook.told


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    reason = "tensorboard is not installed"
    module = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(module, reason=reason).EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_every_number_of_a_round_is_there(experiment: Callable[..., Path]) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    folder = experiment(tracking="tensorboard")
    rows = read_lines(folder / "history.jsonl")
    expected = [(row["round"], pytest.approx(row["accuracy"])) for row in rows]
    assert scalars(folder / "tensorboard", "accuracy") == expected
    assert len(scalars(folder / "tensorboard", "upload_bytes")) == 2


def test_rounds_run_again_replace_the_earlier_ones(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    config, files = parse({}), RunFolder(tmp_path)
    first = TensorBoard(config, files, -1)
    for number in range(4):
        first.add_round({"round": number, "accuracy": 0.0, "note": "kept out"})
    second = TensorBoard(config, files, 1)
    for number in range(4):
        second.add_round({"round": number, "accuracy": 1.0})
    assert scalars(tmp_path / "tensorboard", "accuracy") == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_no_files_unless_asked(experiment: Callable[..., Path]) -> None:
    assert not (experiment(num_rounds=1) / "tensorboard").exists()


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedsuite.training.tracking, "find_spec", lambda name: None)
    check_feasible(parse({"tracking": "none"}))
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(UserError, match=rf"package {name} .* 'fedsuite\[{name}\]'"):
            check_feasible(parse({"tracking": name}))


def test_several_trackers_are_separated_by_commas() -> None:
    assert parse({"tracking": "wandb, mlflow,wandb"}).trackers == ("wandb", "mlflow")
    assert parse({}).trackers == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wandbb", "Did you mean 'wandb'. Choices: mlflow, none, tensorboard, wandb. Several"),
        ("mlflow,", "Choices: "),
        ("", "Choices: "),
        ("mlflow,none", "'none' stands alone"),
    ],
)
def test_an_unknown_tracker_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse({"tracking": text})


def test_a_tracker_gets_rounds_summary_files_and_report(
    experiment: Callable[..., Path], notebook: list[Any]
) -> None:
    files = RunFolder(experiment(tracking="mlflow", num_rounds=2))
    kept = ("run", "config.json", "history.jsonl", "clients.jsonl", "model.safetensors")
    assert notebook == [("open", ""), 0, 1, 2, 2, kept, ("end", True)]
    assert read_document(files.tracker_file("notebook")) == {"id": "page 7", "round": 2}
    notebook.clear()
    add_report(files.read_config(), files)
    assert notebook == [("open", "page 7"), ("report", "report"), ("end", True)]


def test_a_resume_continues_and_sends_no_round_twice(
    experiment: Callable[..., Path], notebook: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(self: Notebook, number: int, metrics: Mapping[str, float]) -> None:
        if number == 2:
            raise KeyboardInterrupt
        notebook.append(number)

    with monkeypatch.context() as patched:
        patched.setattr(Notebook, "send", cut)
        with pytest.raises(KeyboardInterrupt):
            experiment(tracking="mlflow", num_rounds=3, run_name="cut")
    assert notebook == [("open", ""), 0, 1, 2, ("end", False)]  # without files: they change
    notebook.clear()
    experiment(tracking="mlflow", run_name="cut", resume=True)
    assert notebook[:3] == [("open", "page 7"), 2, 3]


def test_a_tracker_that_fails_warns_once_and_the_run_continues(
    experiment: Callable[..., Path],
    tracked_by: Callable[[type[Tracker]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracked_by(Fails)
    assert RunFolder(experiment(tracking="mlflow", num_rounds=3)).state.done
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said == ["mlflow stops tracking this run, which continues: the network is down"]


def test_mlflow_and_wandb_keep_files() -> None:
    kept = {name: load(name).keeps_files for name in ("mlflow", "tensorboard", "wandb")}
    assert kept == {"mlflow": True, "tensorboard": False, "wandb": True}
