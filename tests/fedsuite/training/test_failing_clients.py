"""A run survives clients that fail; a run that cannot continue reports why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import RunFailed

Experiment = Callable[..., Path]


@pytest.fixture(autouse=True)
def outside_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))


def test_a_run_continues_without_clients_that_fail(experiment: Experiment) -> None:
    folder = experiment("faulty:SOME")
    assert read_document(folder / "summary.json")["status"] == "finished"
    assert read_document(folder / "summary.json")["failed_replies"] == 4
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["status"] == "failed"]
    assert [(r["round"], r["client"]) for r in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert "client 1 lost its disk" in rows[0]["reason"] and "Traceback" in rows[0]["reason"]
    assert "NaN" in rows[1]["reason"]
    assert [r.get("clients") for r in read_lines(folder / "history.jsonl")] == [None, 2, 2]


def test_a_run_whose_clients_all_fail_ends_with_their_traceback(
    experiment: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(RunFailed, match="nobody is home"):
        experiment("faulty:ALL", num_rounds=9)
    summary = read_document(tmp_path / "runs" / "run1" / "summary.json")
    assert summary["status"] == "failed" and "nobody is home" in summary["reason"]
    assert summary["rounds"] == 2


def test_a_short_run_without_a_valid_update_is_no_success(experiment: Experiment) -> None:
    with pytest.raises(RunFailed, match="nobody is home"):
        experiment("faulty:ALL", num_rounds=1)
