"""Lets running variants take turns, round by round, through files in a folder.

Before a round a variant reports that it has arrived and waits for its turn. Without a folder in the
environment the gate is always open, so that everything also runs alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

VARIABLE = "FEDSUITE_BENCH_GATE"
POLL_SECONDS = 0.05  # waiting must not slow down the variant that computes


class Gate:
    """Delays each round of one variant until it is its turn."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def wait(self, number: int) -> float:
        """Report that a round is next and wait for its turn; return the seconds waited."""
        if self._folder is None:
            return 0.0
        started = time.perf_counter()
        _mark(self._folder, "arrived", number).touch()
        go = _mark(self._folder, "go", number)
        while not go.exists():
            time.sleep(POLL_SECONDS)
        _mark(self._folder, "left", number).touch()
        return time.perf_counter() - started


def own_gate() -> Gate:
    """Return the gate this process was given."""
    folder = os.environ.get(VARIABLE)
    return Gate(Path(folder) if folder else None)


def open_gate(folder: Path, number: int) -> None:
    """Let a variant start a round."""
    _mark(folder, "go", number).touch()


def arrived(folder: Path, number: int) -> float | None:
    """Return when a variant was ready for a round, None if it is not."""
    return _when(_mark(folder, "arrived", number))


def left(folder: Path, number: int) -> float | None:
    """Return when a variant started a round, None if it has not."""
    return _when(_mark(folder, "left", number))


def _mark(folder: Path, what: str, number: int) -> Path:
    return folder / f"{what}-{number}"


def _when(path: Path) -> float | None:
    return path.stat().st_mtime if path.exists() else None
