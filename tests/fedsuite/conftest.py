"""A suite and its report, made once for all tests that look at them; nodes met without waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_once import made_once
from run_folders import write_suite

from fedsuite.report.build import make_report


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "suite", write_suite)


@pytest.fixture(scope="session")
def report(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "report", lambda out: make_report(str(suite), out))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the PNG and PDF files of a report empty, which take three quarters of its time."""
    for kind in ("png", "pdf"):
        monkeypatch.setattr(f"fedsuite.report.drawing.{kind}", lambda figure: b"")


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meet deployed nodes without waiting for more of them."""
    from fedsuite.nodes import deployed

    monkeypatch.setattr(deployed, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "POLL_SECONDS", 0.01)
