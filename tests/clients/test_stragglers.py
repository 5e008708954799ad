"""A straggler takes fewer steps, and all that depends on steps sees those that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bowl import fit, place

from clients.base import Client, Training
from clients.feda4 import FedA4Client
from clients.fedavg import FedAvgClient
from clients.scaffold import ScaffoldClient
from clients.stem import StemClient
from clients.taco import TacoClient
from fedsuite import registry
from fedsuite.core.seeds import generator

SLOW: dict[str, Any] = {"batch_size": 1, "stragglers": 1.0, "straggler_min": 0.3}
CLIENTS = {
    "fedavg": FedAvgClient,
    "scaffold": ScaffoldClient,
    "stem": StemClient,
    "taco": TacoClient,
}


def steps_of(total: int) -> int:
    """Return how many of its steps client 0 takes in round 1 with seed 0."""
    draw = generator(0, "straggler", 1, 0)
    assert draw.random() < SLOW["stragglers"]
    return int(total * draw.uniform(SLOW["straggler_min"], 1.0) + 0.5)


def train(algo: str, folder: Path, how: Training) -> tuple[list[Any], float]:
    """Return what a client sends and keeps, and how many steps it reports."""
    cls: type[Client] = CLIENTS[algo]
    context, params = place(folder, how), registry.params(algo)()
    received = [[1.0, 2.0]] * len(cls.receives)
    scalars = {"alpha": 0.5, "counted": 0, "last_step": 0.0}
    sent, _, metrics = fit(cls, context, *received, params=params, lr=0.1, **scalars)
    kept = context.state.load(after_round=True)
    return [*sent, *(kept[name] for name in sorted(kept))], metrics["steps"]


@pytest.mark.parametrize("algo", CLIENTS)
def test_it_is_a_client_with_the_steps_that_it_takes(algo: str, tmp_path: Path) -> None:
    steps = steps_of(10)
    assert 3 <= steps < 10
    slow, reported = train(algo, tmp_path / "slow", Training(local_steps=10, **SLOW))
    short, _ = train(algo, tmp_path / "short", Training(local_steps=steps, batch_size=1))
    assert reported == steps
    for one, other in zip(slow, short, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_epoch_that_it_does_not_reach_changes_nothing(tmp_path: Path) -> None:
    """Of 10 epochs of one step, those after the last step add zeros to the trajectory."""
    context = place(tmp_path, Training(local_epochs=10, **SLOW))
    (update, path), _, metrics = fit(
        FedA4Client, context, [0.0, 0.0], params=registry.params("feda4")()
    )
    changes = path.reshape(10, 2)
    assert metrics["steps"] == steps_of(10)
    assert [bool(change.any()) for change in changes] == [n < steps_of(10) for n in range(10)]
    np.testing.assert_allclose(changes.sum(axis=0), update, rtol=1e-6)
