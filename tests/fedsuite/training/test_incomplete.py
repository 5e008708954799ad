"""What a run lacks is said: scores, models, rounds that change nothing, clients expelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lossy import LossyGrid

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import RunFailed
from fedsuite.records.checkpoint import load_checkpoint
from fedsuite.records.folder import RunState
from fedsuite.records.reader import read_run

Experiment = Callable[..., Path]


@pytest.fixture(autouse=True)
def outside_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))


def test_an_earlier_score_is_not_the_last_rounds(experiment: Experiment) -> None:
    grid = LossyGrid(2, lambda kind, rnd, *_: (kind, rnd) == ("evaluate", 2))
    run = read_run(experiment(grid=grid, personal_eval="on"))
    assert run.state is RunState.FINISHED
    assert "personal_accuracy" in run.history[1] and "personal_accuracy" not in run.history[2]
    names = ("personal_accuracy", "personal_mean", "personal_worst")
    assert [run.summary[name] for name in names] == [None] * 3
    assert run.summary["best_personal_accuracy"] == run.history[1]["personal_accuracy"]
    assert run.note == "4 clients unscored in the last evaluation"


def test_clients_unscored_in_the_last_round_are_counted(experiment: Experiment) -> None:
    """Those of one of two nodes, in both rounds; the last counts."""
    grid = LossyGrid(2, lambda kind, rnd, node, tries: kind == "evaluate" and node == 1)
    run = read_run(experiment(grid=grid, personal_eval="on"))
    assert run.summary["personal_accuracy"] == run.history[2]["personal_accuracy"]
    assert (run.summary["unscored_clients"], run.summary["missing_updates"]) == (2, 0.0)
    assert run.note == "2 clients unscored in the last evaluation"


def test_a_client_without_test_rows_is_not_lost(experiment: Experiment) -> None:
    folder = experiment("faulty:NO_ROWS", personal_eval="on")
    run = read_run(folder)
    assert run.note == "" and run.summary["unscored_clients"] == 0
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    assert {row["status"] for row in rows if row["client"] == 1} == {"no test rows"}
    others = [row for row in rows if row["client"] != 1 and row["round"] == 2]
    correct, total = (sum(row[name] for row in others) for name in ("correct", "num_examples"))
    assert run.summary["personal_accuracy"] == pytest.approx(correct / total)


def test_models_that_were_not_saved_are_told(experiment: Experiment) -> None:
    """The first evaluation of round 2 scores, the others are the tries to save."""
    grid = LossyGrid(
        2,
        lambda kind, rnd, node, tries: (kind, rnd, node) == ("evaluate", 2, 1) and tries > 1,
    )
    folder = experiment("fedamp", grid)
    run = read_run(folder)
    assert (run.summary["saved_models"], run.summary["unsaved_models"]) == (2, 2)
    assert run.note == "2 of 4 client models not saved"
    lost = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "save"]
    assert [(row["round"], row["status"]) for row in lost] == [(2, "failed")] * 2
    assert all("node failed" in row["reason"] for row in lost)


def test_a_failed_run_tells_whom_it_expelled(experiment: Experiment, tmp_path: Path) -> None:
    """Client 3 is the freeloader; all are expelled in round 1, and rounds 2 to 4 are empty."""
    with pytest.raises(RunFailed, match="all 4 clients are expelled; nobody was left to train"):
        experiment("faulty:EXPELS", freeloaders="1", num_rounds=6, run_name="all")
    summary = read_document(tmp_path / "runs" / "all" / "summary.json")
    assert summary["expelled"] == [0, 1, 2, 3]
    assert (summary["freeloader_tpr"], summary["freeloader_fpr"]) == (1.0, 1.0)
    assert "a resume" not in summary["reason"] and "no client" not in summary["reason"]


def test_rounds_that_are_not_finite_are_empty(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="not finite in the last 3 rounds, so the model did not"):
        experiment("faulty:DIVERGES", num_rounds=9, run_name="nan")
    run = read_run(tmp_path / "runs" / "nan")
    assert run.state is RunState.FAILED and run.last_round == 3
    checkpoint = load_checkpoint(run.folder)
    assert checkpoint is not None and checkpoint.round == 1
    with pytest.raises(RunFailed, match="not finite in the last round"):
        experiment("faulty:DIVERGES", num_rounds=2)


def test_a_worker_killed_before_it_said_who_it_is_is_asked_again(experiment: Experiment) -> None:
    grid = LossyGrid(2, lambda kind, rnd, node, tries: kind == "query" and node + tries == 2)
    run = read_run(experiment(grid=grid))
    assert grid.tries["query", 0, 1] == 2
    told = "a node failed (The actor died); it is asked again"
    assert run.state is RunState.FINISHED and told in run.history[1]["note"]
    with pytest.raises(RuntimeError, match="cannot take part"):
        experiment(grid=LossyGrid(2, lambda kind, *_: kind == "query"))
