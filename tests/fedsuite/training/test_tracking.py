"""Event files for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedsuite.training.tracking
from fedsuite.config import parse
from fedsuite.core.files import read_lines
from fedsuite.core.settings import UserError
from fedsuite.training.loop import check_feasible
from fedsuite.training.tracking import TensorBoard, check_tracking


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
    first = TensorBoard(tmp_path, -1)
    for number in range(4):
        first.add_round({"round": number, "accuracy": 0.0, "note": "kept out"})
    second = TensorBoard(tmp_path, 1)
    for number in (2, 3):
        second.add_round({"round": number, "accuracy": 1.0})
    assert scalars(tmp_path / "tensorboard", "accuracy") == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_no_files_unless_asked(experiment: Callable[..., Path]) -> None:
    assert not (experiment(num_rounds=1) / "tensorboard").exists()


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedsuite.training.tracking, "find_spec", lambda name: None)
    check_tracking("none")
    with pytest.raises(UserError, match=r"fedsuite\[tensorboard\]"):
        check_feasible(parse({"tracking": "tensorboard"}))
    with pytest.raises(UserError, match="none, tensorboard"):
        parse({"tracking": "wandb"})
