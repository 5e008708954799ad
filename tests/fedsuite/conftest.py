"""A suite's folder and its report, made once for all tests that look at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import write_suite

from fedsuite.report.build import make_report


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="session")
def report(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    make_report(str(suite), out)
    return out
