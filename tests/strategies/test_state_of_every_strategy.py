"""What every strategy must keep across a restart, whatever it keeps beside."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedsuite import registry
from strategies.base import BaseStrategy, RunInfo

SHAPES = {"fc.weight": (2, 3), "fc.bias": (2,)}


def fresh(name: str, clients: int = 3) -> BaseStrategy:
    strategy = registry.find(name).strategy
    sizes = dict.fromkeys(range(clients), 1)
    info = RunInfo(num_clients=clients, client_sizes=sizes, seed=0, shapes=SHAPES)
    made: BaseStrategy = strategy(info)
    made.model = np.zeros(8, np.float32)
    return made


def readable(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state that can be compared, after what a checkpoint does to its scalars."""
    arrays = {k: (v.dtype, v.tolist()) for k, v in state.items() if isinstance(v, np.ndarray)}
    return arrays | json.loads(json.dumps({k: v for k, v in state.items() if k not in arrays}))


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_expelled_clients_stay_expelled_after_a_restart(name: str) -> None:
    before, after = fresh(name), fresh(name)
    before.expelled = {8, 1}  # which a set has in another order
    after.expelled = {2}
    after.load_state(before.state())
    assert after.expelled == {1, 8}
    assert before.state()["expelled"] == [1, 8]
    assert readable(after.state()) == readable(before.state())


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_growing_by_no_client_changes_nothing_and_by_one_gives_it_a_fresh_start(name: str) -> None:
    strategy = fresh(name)
    strategy.expelled = {1}
    before = readable(strategy.state())
    strategy.grow(strategy.info)
    assert readable(strategy.state()) == before
    strategy.grow(fresh(name, clients=4).info)
    expected = fresh(name, clients=4)
    expected.expelled = {1}
    assert readable(strategy.state()) == readable(expected.state())
