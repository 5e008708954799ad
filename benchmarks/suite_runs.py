"""Variant (d), the suite itself: its command, its rounds, and what its clients computed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.core.files import read_lines
from fedsuite.nodes.simulated import balanced
from fedsuite.records.folder import RunFolder

ALGORITHM = "benchmarks.gated_fedavg:ALGORITHM"
NODES = {"ray": 2, "inline": 1}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """Seconds of local training in one round: of the node with the most, and of all clients."""

    busiest_node: float
    all_clients: float


def command(engine: str, settings: Mapping[str, str], folder: Path) -> list[str]:
    """Return the command a user would type, with the FedAvg that takes turns."""
    pairs = [f"{key}={value}" for key, value in settings.items()]
    where = [f"results-dir={folder.parent}", "--name", folder.name]
    nodes = ["--engine", engine, "--nodes", str(NODES[engine])]
    return [sys.executable, "-m", "fedsuite.cli", "run", ALGORITHM, *pairs, *where, *nodes]


def rounds(folder: Path) -> list[dict[str, Any]]:
    """Return a run's rounds, each without the time it waited for its turn."""
    return [
        {
            "round": row["round"],
            "seconds": row["wall_seconds"] - row["gate_seconds"],
            "accuracy": row["accuracy"],
            "loss": row["loss"],
            "clients": row["clients"],
        }
        for row in read_lines(RunFolder(folder).history_file)
        if row["round"] > 0
    ]


def training(folder: Path, nodes: int) -> list[Training]:
    """Return what the clients computed in each round."""
    trained = [row for row in read_lines(RunFolder(folder).clients_file) if row["phase"] == "train"]
    by_round: dict[int, list[Row]] = {}
    for row in trained:
        by_round.setdefault(row["round"], []).append(row)
    return [
        Training(busiest_node(rows, nodes), sum(row["seconds"] for row in rows))
        for _, rows in sorted(by_round.items())
    ]


def busiest_node(rows: Sequence[Row], nodes: int) -> float:
    """Return the most seconds of training that any node had in a round."""
    sizes = {row["client"]: float(row["num_examples"]) for row in rows}
    seconds = {row["client"]: row["seconds"] for row in rows}
    cohorts = balanced(sizes, sizes, nodes)
    return max(sum(seconds[client] for client in cohort) for cohort in cohorts)
