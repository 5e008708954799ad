"""Deployed clients whose score is their own score themselves in the message that they train in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from federations import DeployedGrid, partitions

from fedsuite import registry
from fedsuite.core.files import read_lines

Experiment = Callable[..., Path]
ROUNDS, NODES = 2, 3
OWN = [name for name in sorted(registry.ALGORITHMS) if registry.find(name).client.scores_own]
UNLIKE = {"seconds", "cpu_seconds", "compute_seconds", "client_compute_seconds"}
UNLIKE |= {"client_cpu_seconds", "wall_seconds", "note"}


def record(folder: Path) -> list[dict[str, Any]]:
    """Return all that a run recorded of its rounds and clients, without times and news."""
    rows = [*read_lines(folder / "history.jsonl"), *read_lines(folder / "clients.jsonl")]
    return [{name: v for name, v in row.items() if name not in UNLIKE} for row in rows]


def kinds(grid: DeployedGrid) -> Counter[str]:
    return Counter(message.metadata.message_type for message in grid.heard)


def test_whose_score_is_their_own() -> None:
    assert OWN == ["apple", "ditto", "fedamp", "fedfomo", "local", "pfedme"]


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("algo", OWN)
def test_they_need_no_second_message(algo: str, experiment: Experiment, tmp_path: Path) -> None:
    """Only the last evaluation, with which clients save their models, is a message."""
    settings: dict[str, Any] = {"num_clients": NODES, "num_rounds": ROUNDS, "personal_eval": "on"}
    grid = DeployedGrid(*partitions(NODES, tmp_path / "state"))
    deployed = experiment(algo, grid, **settings)
    assert kinds(grid) == {"query": NODES, "train": ROUNDS * NODES, "evaluate": NODES}
    assert record(deployed) == record(experiment(algo, **settings))
