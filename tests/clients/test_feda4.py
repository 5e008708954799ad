"""FedA4's client: what its trajectory is made of, and how long what it sends is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bowl import fit, place

from clients.base import Training
from clients.feda4 import FedA4Client
from strategies.feda4 import FedA4Params

TWO_EPOCHS = Training(local_epochs=2, batch_size=1)


def test_a_trajectory_begins_at_the_received_model(tmp_path: Path) -> None:
    """Bottom (1, 3), lr 1/2, from (3, 3): steps (-1, 0) and (-1/2, 0)."""
    (update, trajectory), _, _ = fit(
        FedA4Client, place(tmp_path, TWO_EPOCHS), [3, 3], params=FedA4Params()
    )
    assert trajectory.tolist() == [-1, 0, -0.5, 0] and update.tolist() == [-1.5, 0]


def test_the_compact_form_records_no_path(tmp_path: Path) -> None:
    client = FedA4Client(place(tmp_path, TWO_EPOCHS), FedA4Params(trajectory="compact"))
    client.path = []
    client.end_epoch()
    assert client.path == [] and client.outgoing() == ("update",)
    (update,), _, _ = fit(FedA4Client, client.context, [3, 3], params=client.params)
    assert np.array_equal(update, [-1.5, 0])


def test_a_trajectory_is_as_long_as_the_model_for_each_epoch(tmp_path: Path) -> None:
    client = FedA4Client(place(tmp_path, TWO_EPOCHS), FedA4Params())
    assert (client.length("update"), client.length("trajectory")) == (2, 4)
