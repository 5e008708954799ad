"""FedADW's mixing at its edges, on bowls with their bottom at (1, 3)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Bowl, fit, place

from clients.base import ClientContext, Training
from clients.fedadw import FedAdwClient
from clients.fedala import LocalAggregation
from clients.state import ClientState
from strategies.fedadw import FedAdwParams

ONE_STEP = Training(local_steps=1, batch_size=1)
ADW = FedAdwParams(ala_layers=1, ala_percent=80, ala_lr=0.5, ala_tolerance=1e9, ala_max_epochs=1)


def kept(folder: Path) -> dict[str, np.ndarray]:
    return ClientState(folder, 0, 99, 0).load()


def test_two_layers_are_mixed_each_by_its_own_weight(tmp_path: Path) -> None:
    """Own model (1/2, 3/2), received (0, 1/2): gaps (-1/2, -1), gradients (-1, -5/2).

    W = 1 - 1/2 (1/2, 5/2) = (3/4, -1/4), the latter clipped to 0. The start is own + gap W =
    (1/8, 3/2), one step of 1/2 further (9/16, 9/4).
    """
    params = dataclasses.replace(ADW, ala_layers=2)
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=params)
    (update,), _, metrics = fit(FedAdwClient, place(tmp_path, ONE_STEP, 2), [0, 0.5], params=params)
    assert kept(tmp_path)["weights"].tolist() == [0.75, 0]
    assert update.tolist() == [0.5625, 1.75]
    assert (metrics["ala-mean"], metrics["ala-min"]) == (0.375, 0.0)
    assert (metrics["ala-std"], metrics["ala-epochs"]) == (0.375, 1)


def test_a_weight_is_never_above_one(tmp_path: Path) -> None:
    """Received 5/2 is nearer to 3 than the own 3/2: W would rise to 1 + 1/2 * 1/2, and stays 1."""
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=ADW)
    (update,), _, _ = fit(FedAdwClient, place(tmp_path, ONE_STEP, 2), [0, 2.5], params=ADW)
    assert kept(tmp_path)["weights"].tolist() == [1]
    assert update.tolist() == [0.5, 0.25]


def test_without_a_gap_there_is_nothing_to_learn(tmp_path: Path) -> None:
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=ADW)
    _, _, metrics = fit(FedAdwClient, place(tmp_path, ONE_STEP, 2), [9, 1.5], params=ADW)
    assert (metrics["ala-epochs"], metrics["ala-mean"]) == (0, 1)


def test_a_round_that_is_computed_again_starts_from_the_round_before(tmp_path: Path) -> None:
    """As after a resume: what the round itself wrote is the future to it."""
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=ADW)
    first, again = (
        fit(FedAdwClient, place(tmp_path, ONE_STEP, 2), [0, 0.5], params=ADW) for _ in range(2)
    )
    assert np.array_equal(first[0], again[0]) and first[2] == again[2]


def test_a_model_out_of_the_finite_numbers_is_not_kept(tmp_path: Path) -> None:
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=ADW)
    before = kept(tmp_path)
    nine = Training(local_steps=9, batch_size=1)
    fit(FedAdwClient, place(tmp_path, nine, 2), [1, 0.5], params=ADW, lr=1e30)
    assert kept(tmp_path)["model"].tolist() == before["model"].tolist()


def many_rows(folder: Path, count: int, number: int = 1) -> ClientContext:
    """A client with so many rows, all alike, in batches of two."""
    context = place(folder, Training(local_steps=1, batch_size=2), number)
    task: Any = SimpleNamespace(
        rows=lambda rows: (torch.tensor([[1.0, 3.0]]).expand(len(rows), 2), torch.zeros(len(rows))),
        split=SimpleNamespace(train=[np.arange(100, 100 + count)], own_test=[np.array([0])]),
    )
    return dataclasses.replace(context, task=task)


def aggregation(folder: Path, count: int, number: int = 1, **params: Any) -> LocalAggregation:
    settings = dataclasses.replace(ADW, **params)
    cls = type("BowlClient", (Bowl, FedAdwClient), {})
    client = cls(many_rows(folder, count, number), settings)
    state = {"model": np.array([0, 1], np.float32), "weights": np.ones(1, np.float32)}
    return LocalAggregation(client, 1, state, number)


@pytest.mark.parametrize(
    ("percent", "count", "expected"), [(30, 10, 3), (1, 10, 1), (100, 10, 10), (80, 8, 6)]
)
def test_weights_are_learnt_on_some_of_the_rows(
    tmp_path: Path, percent: int, count: int, expected: int
) -> None:
    """80 per cent of eight are 6.4."""
    rows = aggregation(tmp_path, count, ala_percent=percent).rows.tolist()
    assert len(rows) == len(set(rows)) == expected
    assert set(rows) <= set(range(100, 100 + count))


def test_other_rounds_draw_other_rows(tmp_path: Path) -> None:
    one, again, later = (aggregation(tmp_path, 30, n).rows.tolist() for n in (1, 1, 2))
    assert one == again and one != later


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches(tmp_path: Path) -> None:
    """Six rows make three batches. At (0, 0) the loss is 5; a rate of 1e-12 leaves it there."""
    learning = aggregation(tmp_path, 6, ala_percent=100, ala_lr=1e-12)
    assert learning._epoch() == pytest.approx(5)
    assert learning.model.module.training


def test_learning_ends_when_ten_losses_agree_or_at_the_last_epoch(tmp_path: Path) -> None:
    done = aggregation(tmp_path, 2, ala_tolerance=0.5, ala_max_epochs=12)._done
    even, uneven = [3.0] * 9, [0.0, 9.0] * 5
    assert not done(even, first=True) and done([*even, 3.0], first=True)
    assert not done(uneven, first=True) and done(uneven + even + [3.0], first=True)
    assert not done([*uneven, 1.0], first=True) and done([*uneven, 1.0, 9.0], first=True)
    assert not done([], first=False) and done([1.0], first=False)


def test_a_gap_in_one_layer_is_enough_to_learn(tmp_path: Path) -> None:
    """Own (1/2, 3/2), received (1/2, 1/2): the low layer has no gap and keeps its weight."""
    params = dataclasses.replace(ADW, ala_layers=2)
    fit(FedAdwClient, place(tmp_path, ONE_STEP, 1), [0, 0], params=params)
    _, _, metrics = fit(FedAdwClient, place(tmp_path, ONE_STEP, 2), [0.5, 0.5], params=params)
    assert metrics["ala-epochs"] == 1 and kept(tmp_path)["weights"].tolist() == [1, 0]


def test_the_first_learning_is_not_repeated_after_a_round_without_a_gap(tmp_path: Path) -> None:
    """Round 1 mixes nothing, round 2 learns for three epochs, round 3 receives the client's own
    top, so that there is nothing to learn; round 4 learns again, for one epoch.
    """
    params = dataclasses.replace(ADW, ala_tolerance=1e-12, ala_max_epochs=3)
    epochs = []
    for number in (1, 2, 3, 4):
        top = kept(tmp_path)["model"][1] if number == 3 else 0.5
        context = place(tmp_path, ONE_STEP, number)
        _, _, metrics = fit(FedAdwClient, context, [0, top], params=params)
        epochs.append(metrics["ala-epochs"])
    assert epochs == [0, 3, 0, 1]
