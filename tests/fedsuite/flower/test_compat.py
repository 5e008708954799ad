"""Dead Ray workers are replaced, whatever Ray calls their death."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from ray import exceptions

from fedsuite.flower.compat import replace_dead_workers

DEATHS = ("ActorDiedError", "OutOfMemoryError", "NodeDiedError", "WorkerCrashedError")


@pytest.mark.parametrize("death", [*DEATHS, "RayTaskError", ""])
def test_a_dead_worker_is_replaced_and_a_living_one_stays(
    death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Any = getattr(exceptions, death, ValueError)
    raised = error.__new__(error)

    def fetch_result_and_return_actor_to_pool(pool: Any, future: Any) -> None:
        raise raised

    name = fetch_result_and_return_actor_to_pool.__name__
    monkeypatch.setattr(BasicActorPool, name, fetch_result_and_return_actor_to_pool)
    replace_dead_workers.__wrapped__()
    pool = SimpleNamespace(
        _future_to_actor={"f": "old", "g": "other"}, create_actor_fn=lambda: "new"
    )
    with pytest.raises(error):
        getattr(BasicActorPool, name)(pool, "f")
    now = "new" if death in DEATHS else "old"
    assert pool._future_to_actor == {"f": now, "g": "other"}
