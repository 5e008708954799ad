"""A suite and its report, made once for all tests that look at them; nodes met without waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_suite

from fedsuite.report.build import make_report


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="session")
def report(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    make_report(str(suite), out)
    return out


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meet deployed nodes without waiting for more of them."""
    from fedsuite.nodes import deployed

    monkeypatch.setattr(deployed, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "POLL_SECONDS", 0.01)
