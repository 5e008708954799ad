"""Personal accuracy over rounds: the last, the mean of the last five, the best."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from run_folders import write_run

from fedsuite.config import parse
from fedsuite.records.collection import open_collection
from fedsuite.records.reader import read_run
from fedsuite.records.summary import summarise
from fedsuite.report.document import ReportTable
from fedsuite.report.per_client import per_client
from fedsuite.terminal.show import show

BY_ROUND = [0.1, 0.2, 0.9, 0.5, 0.6, 0.5, 0.4, 0.7]  # round 0 is scored without clients


def test_by_hand() -> None:
    """Rounds 3 to 7: (0.5 + 0.6 + 0.5 + 0.4 + 0.7) / 5 = 0.54; the best is round 2's 0.9.

    The best client is another thing: 0.99 in the last round.
    """
    rows: list[dict[str, float]] = [
        {"round": n, "personal_accuracy": a, "personal_best": 0.99}
        for n, a in enumerate(BY_ROUND)
        if n
    ]
    first: dict[str, float] = {"round": 0}
    summary = summarise(parse({"algo": "fedadw"}), [first, *rows], [], "finished")
    assert summary["personal_accuracy"] == 0.7
    assert summary["mean_last5_personal_accuracy"] == pytest.approx(0.54)
    assert (summary["best_personal_accuracy"], summary["personal_best"]) == (0.9, 0.99)


def test_rounds_without_a_score_count_for_nothing() -> None:
    rows: list[dict[str, float]] = [{"round": 1, "personal_accuracy": 0.4}, {"round": 2}]
    rows += [{"round": 3, "personal_accuracy": 0.2}]
    summary = summarise(parse({"algo": "fedadw"}), rows, [], "finished")
    assert summary["mean_last5_personal_accuracy"] == pytest.approx(0.3)
    assert summary["best_personal_accuracy"] == 0.4
    nothing = summarise(parse({}), [{"round": 0, "accuracy": 0.5}], [], "finished")
    assert nothing["mean_last5_personal_accuracy"] is nothing["best_personal_accuracy"] is None


def test_they_are_shown_and_reported(tmp_path: Path) -> None:
    """The clients' scores are the accuracy times 1, 0.9, 0.8 and 0.7; their mean 0.85 of it."""
    folder = write_run(tmp_path, "one", "fedadw", BY_ROUND)
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))
    show(read_run(folder), console)
    assert "mean of the last 5 0.5400, best round 0.9000" in console.export_text()
    table = per_client(open_collection(str(folder)))[0]
    assert isinstance(table, ReportTable)
    assert list(table.headings[2:5]) == ["last round", "last 5 rounds", "best round"]
    assert list(table.rows[0][:8]) == [
        "fedadw",
        "digits",
        "70.00",
        "54.00",
        "90.00",
        "59.50",
        "–",
        "49.00",
    ]
