"""Batches are cut as promised, and local training is what the equations say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bowl import fit, place
from hypothesis import given
from hypothesis import strategies as st

from clients.base import Received, Reply, Training, epoch_plan, step_plan
from clients.fedavg import FedAvgClient
from clients.fedprox import FedProxClient
from clients.freeloader import freeloading
from strategies.fedprox import FedProxParams


def draw() -> np.random.Generator:
    return np.random.default_rng(0)


@given(st.integers(1, 60), st.integers(1, 20))
def test_an_epoch_visits_every_row_once(rows: int, size: int) -> None:
    batches = epoch_plan(np.arange(rows) + 100, size, draw())
    assert sorted(np.concatenate(batches)) == list(range(100, 100 + rows))
    assert all(len(b) in (size, size + 1) for b in batches[:-1])
    if rows > 1 and size > 1:
        assert all(len(b) > 1 for b in batches)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 30))
def test_steps_are_exactly_as_many_and_full(rows: int, size: int, steps: int) -> None:
    batches = step_plan(np.arange(rows), size, steps, draw())
    assert len(batches) == steps
    assert all(len(b) == min(size, rows) for b in batches)
    seen = np.bincount(np.concatenate(batches), minlength=rows)
    assert seen.max() - seen.min() <= 1


def test_two_steps_of_fedavg_by_hand(tmp_path: Path) -> None:
    """w=(0,0), x=(1,3), lr=1/2: w=(1/2,3/2), then w=(3/4,9/4). The update is w - 0."""
    context = place(tmp_path, Training(local_steps=2, batch_size=1))
    (update,), count, metrics = fit(FedAvgClient, context, [0.0, 0.0])
    assert np.array_equal(update, [0.75, 2.25])
    assert (count, metrics["steps"]) == (1, 2)
    assert metrics["loss"] == pytest.approx((5.0 + 1.25) / 2)


def test_two_steps_of_fedprox_by_hand(tmp_path: Path) -> None:
    """zeta=1 from w=(2,0): g=(1,-3), no pull: w=(1.5,1.5). Then g=(0.5,-1.5), pull=(-0.5,1.5):
    the sum is zero and w stays; the update is (-0.5, 1.5).
    """
    context = place(tmp_path, Training(local_steps=2, batch_size=1))
    (update,), _, _ = fit(FedProxClient, context, [2.0, 0.0], params=FedProxParams(zeta=1.0))
    assert np.array_equal(update, [-0.5, 1.5])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_optimiser_remembers_nothing_of_the_last_round(tmp_path: Path, optimizer: str) -> None:
    training = Training(local_steps=2, batch_size=1, optimizer=optimizer, momentum=0.9)
    first, second = (
        fit(FedAvgClient, place(tmp_path, training, number), [4, 4])[0] for number in (1, 2)
    )
    assert np.array_equal(first, second)


def test_fedprox_without_its_term_is_fedavg_bit_for_bit(tmp_path: Path) -> None:
    training = Training(local_steps=3, batch_size=1, momentum=0.9)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, training), [0.1, 0.7])
    off = FedProxParams(zeta=0.0)
    (prox,), _, _ = fit(FedProxClient, place(tmp_path, training), [0.1, 0.7], params=off)
    assert plain.tobytes() == prox.tobytes()


class Typo(FedAvgClient):
    """Names a vector that it has not declared."""

    def train_round(self, received: Received) -> Reply:
        reply = super().train_round(received)
        reply.vectors["updaet"] = reply.vectors["update"]
        return reply


def test_a_vector_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vector 'updaet' is not among those sent"):
        fit(Typo, place(tmp_path, Training(local_steps=1)), [0.0, 0.0])


def test_vectors_must_be_as_many_as_their_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        fit(FedAvgClient, place(tmp_path, Training(local_steps=1)), [0.0, 0.0], [1.0, 1.0])


def test_what_is_received_has_names(tmp_path: Path) -> None:
    context = place(tmp_path, Training(local_steps=1))
    config = {"lr": 0.5, "alpha": 1, "peer-ids": [2, 3]}
    received = FedAvgClient(context).receive(("model",), [np.ones(2, np.float32)], config)
    assert received["model"].tolist() == [1, 1] and "model" in received and "cloud" not in received
    assert (received.lr, received.number("alpha")) == (0.5, 1.0)
    assert received.integers("peer-ids") == [2, 3]


def test_a_freeloader_sends_back_the_last_global_change(tmp_path: Path) -> None:
    """Received (1,1), then (3,0): zeros first, then (2,-1)."""
    cls = freeloading(FedAvgClient)
    training = Training(local_steps=1)
    (first,), count, _ = fit(cls, place(tmp_path, training, 1), [1.0, 1.0])
    (second,), _, _ = fit(cls, place(tmp_path, training, 2), [3.0, 0.0])
    assert np.array_equal(first, [0.0, 0.0]) and count == 1
    assert np.array_equal(second, [2.0, -1.0])
