"""Variant (d), the suite itself, and where its rounds' time goes."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.record import read_lines
from strategies.cohorts import balanced

NODES = {"ray": 2, "inline": 1}
Row = Mapping[str, Any]


def command(engine: str, settings: Mapping[str, str], folder: Path) -> list[str]:
    """Return the command a user would type."""
    pairs = [f"{key}={value}" for key, value in settings.items()]
    place = [f"results-dir={folder.parent}", "--name", folder.name]
    nodes = ["--engine", engine, "--nodes", str(NODES[engine])]
    return [sys.executable, "-m", "fedsuite.cli", "run", "fedavg", *pairs, *place, *nodes]


class HistoryWatch:
    """Notes when each round appeared in a run's record."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "history.jsonl"
        self._size = 0
        self.seen: dict[int, float] = {}

    def look(self) -> None:
        """Note the last round's time of writing if there is a new one."""
        if not self._path.exists():
            return
        status = self._path.stat()
        rows = read_lines(self._path) if status.st_size != self._size else []
        self._size = status.st_size
        if rows:
            self.seen.setdefault(rows[-1]["round"], status.st_mtime)

    def rounds(self) -> list[dict[str, float]]:
        """Return the rounds with their times; those never seen alone get the next one's."""
        self.look()
        rows = [row for row in read_lines(self._path) if row["round"] > 0]
        later = sorted(self.seen)
        return [
            {
                "round": row["round"],
                "seconds": row["wall_seconds"],
                "accuracy": row["accuracy"],
                "ended": self.seen[next(n for n in later if n >= row["round"])],
            }
            for row in rows
        ]


@dataclass(frozen=True)
class Breakdown:
    """Medians over the steady rounds of one engine, in seconds."""

    wall: float
    busiest_node: float
    all_clients: float
    between_rounds: float

    @property
    def rest(self) -> float:
        """Evaluation, aggregation, messages and waiting: all that is not a client's training."""
        return self.wall - self.busiest_node


def breakdown(folder: Path, ends: Mapping[int, float], nodes: int) -> Breakdown:
    """Split the steady rounds of a run into what clients computed and the rest."""
    rows = read_lines(folder / "history.jsonl")
    steady = [row for row in rows if row["round"] > 1]
    trained = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    busiest = [
        busiest_node([r for r in trained if r["round"] == row["round"]], nodes) for row in steady
    ]
    return Breakdown(
        wall=statistics.median(row["wall_seconds"] for row in steady),
        busiest_node=statistics.median(busiest),
        all_clients=statistics.median(row["client_compute_seconds"] for row in steady),
        between_rounds=between_rounds({row["round"]: row["wall_seconds"] for row in rows}, ends),
    )


def busiest_node(rows: Sequence[Row], nodes: int) -> float:
    """Return the most seconds of training that any node had in a round."""
    sizes = {row["client"]: float(row["num_examples"]) for row in rows}
    seconds = {row["client"]: row["seconds"] for row in rows}
    cohorts = balanced(sizes, sizes, nodes)
    return max(sum(seconds[client] for client in cohort) for cohort in cohorts)


def between_rounds(walls: Mapping[int, float], ends: Mapping[int, float]) -> float:
    """Return the mean time from one round's end to the next one's start: record, checkpoint."""
    first, last = min(ends), max(ends)
    if last == first:
        return 0.0
    inside = sum(walls[number] for number in range(first + 1, last + 1))
    return (ends[last] - ends[first] - inside) / (last - first)
