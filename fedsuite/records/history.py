"""A run's history: its rounds, each read once even while the run is in progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedsuite.core.files import LineReader
from fedsuite.metrics import METRICS, ROUND_SCORES, Metric
from fedsuite.records.checks import is_number, is_round

RECENT_ROUNDS = 9
CLIENTS, FAILED_REPLIES, DROPPED_OUT, WALL = (
    METRICS[name] for name in ("clients", "failed", "dropped_out", "wall_seconds")
)
Row = Mapping[str, Any]
Curve = list[tuple[int, float]]


class LiveHistory:
    """The rounds recorded so far; :meth:`update` reads only what was appended since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._reader = LineReader(path, is_round)
        self._inode = self._size = 0

    @property
    def damage(self) -> str:
        """Which lines are damaged, and so left out; empty if none is."""
        return self._reader.damage

    def update(self) -> list[dict[str, Any]]:
        """Read and return the new rounds."""
        if self._was_replaced():
            return self._read_again()
        new = self._reader.new_lines()
        self.rows += new
        return new

    def _was_replaced(self) -> bool:
        """Return whether the file was replaced, as a resumed run's is by the rounds it keeps."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return False
        inode, size = self._inode, self._size
        self._inode, self._size = stat.st_ino, stat.st_size
        return inode != 0 and (stat.st_ino != inode or stat.st_size < size)

    def _read_again(self) -> list[dict[str, Any]]:
        before, self._reader = self.rows, LineReader(self.path, is_round)
        self.rows = self._reader.new_lines()
        pairs = zip(before, self.rows, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return self.rows[kept:]


def curve(history: Sequence[Row], field: str) -> Curve:
    """Return a field by round, where it was measured."""
    return [(row["round"], row[field]) for row in history if is_number(row.get(field))]


def score_curve(history: Sequence[Row]) -> tuple[Metric, Curve] | None:
    """Return the accuracy of the global model by round, else the clients' own."""
    curves = ((metric, curve(history, metric.name)) for metric in ROUND_SCORES)
    return next((found for found in curves if found[1]), None)


def last_round(history: Sequence[Row]) -> int:
    """Return the number of the last round; 0 before the first."""
    return int(history[-1]["round"]) if history else 0


def seconds_left(history: Sequence[Row], rounds: int) -> float | None:
    """Estimate the time left from the median of the last rounds."""
    timed = [seconds for number, seconds in curve(history, WALL.name) if number > 0]
    recent = sorted(timed[-RECENT_ROUNDS:])
    return float(recent[len(recent) // 2] * (rounds - last_round(history))) if recent else None


def describe_round(row: Row) -> list[str]:
    """Describe a round in a few words each: scores, clients, failures, time."""
    parts = [
        f"{metric.title} {metric.as_recorded(row[metric.name])}"
        for metric in ROUND_SCORES
        if row.get(metric.name) is not None
    ]
    if row.get(CLIENTS.name) is not None:
        failed = f", {row[FAILED_REPLIES.name]} failed" if row.get(FAILED_REPLIES.name) else ""
        lost = f", {row[DROPPED_OUT.name]} dropped out" if row.get(DROPPED_OUT.name) else ""
        count = row[CLIENTS.name]
        parts.append(f"{count} {CLIENTS.title if count != 1 else 'client'}{failed}{lost}")
    if row.get(WALL.name) is not None:
        parts.append(f"{WALL.as_recorded(row[WALL.name])} {WALL.unit}/round")
    return parts
