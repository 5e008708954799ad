"""Committed figures beside what the code draws now."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest


def assert_same_figures(drawn: Path, committed: Path) -> None:
    """Compare bytes, if the same matplotlib drew both: each places text in its own way."""
    files = sorted(drawn.iterdir())
    assert files
    for file in files:
        there = (committed / file.name).read_text(encoding="utf-8")
        if f"Matplotlib v{matplotlib.__version__}," not in there:
            pytest.skip(f"{file.name} was drawn by another matplotlib")
        assert file.read_text(encoding="utf-8") == there, f"{file.name} is not of the rows"
