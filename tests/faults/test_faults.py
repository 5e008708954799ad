"""The faults' table, and what a fault does to real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.__main__ import FaultResult, inject, main, report
from faults.catalogue import FAULTS
from fedsuite.deploy.federation import read_plan


def test_the_table_compares_with_the_undisturbed_run() -> None:
    """92.5 - 90.0 = +2.5 points; a run without accuracy has nothing to compare."""
    results = [
        FaultResult("nothing", 6, [], 0.9, 12.4),
        FaultResult("a node killed", 6, [2, 3], 0.925, 20.6),
        FaultResult("all nodes killed", 2, [3, 4, 5, 6], None, 5.0),
    ]
    lines = report(results).splitlines()
    assert lines[0].startswith("| fault | rounds | rounds missed | in the last round |")
    assert lines[2:] == [
        "| nothing | 6 of 6 | none | yes | 90.0 | +0.0 | 12 |",
        "| a node killed | 6 of 6 | 2, 3 | yes | 92.5 | +2.5 | 21 |",
        "| all nodes killed | 2 of 6 | 3, 4, 5, 6 | no | - | - | 5 |",
    ]


def test_an_unknown_fault_is_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["killed", "flood"])
    assert "unknown faults flood. Choices: none, killed, late" in capsys.readouterr().err


@pytest.mark.parametrize(("rounds", "status"), [(6, 0), (4, 1)])
def test_what_an_incomplete_run_left_is_kept_and_the_status_says_so(
    rounds: int,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def injected(name: str, folder: Path, time_limit: float) -> FaultResult:
        (folder / "superlink.log").write_text("why")
        return FaultResult(name, rounds, [], 0.9, 1.0)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("faults.__main__.inject", injected)
    assert main(["none"]) == status
    kept = [path.parent for path in tmp_path.glob("*/superlink.log")]
    said = capsys.readouterr().err
    assert [f"none: logs and records are kept in {folder}" in said for folder in kept] == (
        [True] if status else []
    )


@pytest.mark.deploy
def test_a_run_on_real_processes_has_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node, one round, undisturbed: a federation is set up, a run recorded, all is ended."""
    for name, value in (("__main__.ROUNDS", 1), ("__main__.TARGET", 0)):
        monkeypatch.setattr(f"faults.{name}", value)
    for name, value in (("NODES", 1), ("TARGET", 0)):
        monkeypatch.setattr(f"faults.run.{name}", value)
    result = inject("none", tmp_path, 180.0)
    assert (result.title, result.rounds, result.missed) == (FAULTS["none"].title, 1, [])
    assert result.accuracy is not None
    federation = read_plan(tmp_path)
    assert federation is not None and len(federation.processes()) == 2
    assert not any(process.family() for process in federation.processes())


def test_every_fault_has_a_measured_row_in_the_evidence() -> None:
    page = Path(__file__).parents[2] / "docs" / "evidence" / "faults.md"
    rows = [
        line.split("|")[1].strip() for line in page.read_text().splitlines() if "| 6 of 6 |" in line
    ]
    assert rows == [fault.title for fault in FAULTS.values()]
