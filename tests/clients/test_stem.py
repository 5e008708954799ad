"""STEM's client: the same batch twice, the same chance, statistics once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Bowl, fit, place
from torch import nn

from clients.base import Client, ClientContext, Training
from clients.fedavg import FedAvgClient
from clients.freeloader import freeloading
from clients.stem import StemClient
from fedsuite.core.flat_model import FlatModel
from strategies.stem import StemParams

TWO_STEPS = Training(local_steps=2, batch_size=1)
HALF = StemParams(a=0.5, form="taco")


def test_two_steps_by_hand(tmp_path: Path) -> None:
    """Bottom (1, 3), a = 1/2, lr = 1/2; w = 0 and v = (-2, 0), so the point before is (-1, 0).

    v_0 = (-1, -3) + ((-2, 0) - (-2, -3))/2 = (-1, -3/2), to (1/2, 3/4).
    v_1 = (-1/2, -9/4) + ((-1, -3/2) - (-1, -3))/2 = (-1/2, -3/2), to (3/4, 3/2).
    """
    context = place(tmp_path, TWO_STEPS)
    (update, direction), _, metrics = fit(
        StemClient, context, [0, 0], [-2, 0], params=HALF, last_step=0.5
    )
    assert np.array_equal(update, [0.75, 1.5])
    assert np.array_equal(direction, [-0.5, -1.5])
    assert metrics["steps"] == 2


def test_the_papers_form_sends_where_the_last_direction_was_measured(tmp_path: Path) -> None:
    """The same two steps: v_1 = (-1/2, -3/2) was measured at (1/2, 3/4)."""
    context, params = place(tmp_path, TWO_STEPS), StemParams(a=0.5)
    (update, direction), _, metrics = fit(
        StemClient, context, [0, 0], [-2, 0], params=params, last_step=0.5
    )
    assert np.array_equal(update, [0.5, 0.75])
    assert np.array_equal(direction, [-0.5, -1.5])
    assert metrics["steps"] == 2


def test_without_a_direction_the_first_step_is_plain(tmp_path: Path) -> None:
    """Not ``a g``, which a direction of zero at the same point would give."""
    one = Training(local_steps=1, batch_size=1)
    context, params = place(tmp_path, one), StemParams(a=0.2, form="taco")
    (update, direction), _, _ = fit(
        StemClient, context, [0, 0], [0, 0], params=params, last_step=0.0
    )
    assert np.array_equal(update, [0.5, 1.5])
    assert np.array_equal(direction, [-1, -3])


def test_forgetting_all_is_plain_training(tmp_path: Path) -> None:
    context, params = place(tmp_path, TWO_STEPS), StemParams(a=1.0, form="taco")
    (update, _), _, _ = fit(StemClient, context, [0, 0], [7, 7], params=params, last_step=0.5)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, TWO_STEPS), [0, 0])
    assert update.tobytes() == plain.tobytes()


def test_weight_decay_stays_out_of_the_direction(tmp_path: Path) -> None:
    """The optimiser adds decay to the gradient in place; the direction has none of it.

    From (2, 2) with decay 1: v_0 = (1, -1), step (1 + 2, -1 + 2)/2 to (1/2, 3/2);
    v_1 = g(1/2, 3/2) + (v_0 - g(2, 2))/2 = (-1/2, -3/2).
    """
    training = Training(local_steps=2, batch_size=1, weight_decay=1.0)
    context = place(tmp_path, training)
    (_, direction), _, _ = fit(StemClient, context, [2, 2], [0, 0], params=HALF, last_step=0.0)
    assert np.array_equal(direction, [-0.5, -1.5])


def recording(cls: type[Client]) -> tuple[type[Client], list[tuple[Any, ...]]]:
    """A client on a bowl that notes row, point and a random number at each loss."""
    seen: list[tuple[Any, ...]] = []

    class Recording(Bowl, cls):  # type: ignore[misc, valid-type]
        def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            point = tuple(self.model.weights.tolist())
            seen.append((tuple(x[0].tolist()), point, torch.rand(()).item()))
            return super().loss(x, y)

    return Recording, seen


def many_rows(folder: Path, steps: int) -> ClientContext:
    context = place(folder, Training(local_steps=steps, batch_size=1))
    rows = torch.arange(8.0).reshape(4, 2)
    task: Any = SimpleNamespace(
        rows=lambda indices: (rows[indices], torch.zeros(len(indices), dtype=torch.long)),
        split=SimpleNamespace(train=[np.arange(4)]),
    )
    return dataclasses.replace(context, task=task)


def test_the_second_gradient_has_the_same_batch_and_chance_at_the_point_before(
    tmp_path: Path,
) -> None:
    cls, seen = recording(StemClient)
    received = [np.array(vector, np.float32) for vector in ([0, 0], [-2, 0])]
    torch.manual_seed(0)
    cls(many_rows(tmp_path, 4), HALF).fit(received, {"lr": 0.5, "last-step": 0.5})
    plain_cls, plain = recording(FedAvgClient)
    torch.manual_seed(0)
    plain_cls(many_rows(tmp_path, 4)).fit(received[:1], {"lr": 0.5})
    before, now = seen[0::2], seen[1::2]
    assert len(before) == len(now) == len(plain) == 4
    for k in range(4):
        assert before[k][0] == now[k][0] == plain[k][0], "the same batch, in the usual order"
        assert before[k][2] == now[k][2] == plain[k][2], "the same random numbers"
    assert before[0][1] == (-1.0, 0.0)
    assert [b[1] for b in before[1:]] == [n[1] for n in now[:-1]]


@pytest.mark.parametrize("fresh", [True, False])
def test_statistics_of_batch_norm_move_once_per_step(tmp_path: Path, fresh: bool) -> None:
    """With and without a second gradient they are those of one pass at the current point."""
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    context = dataclasses.replace(place(tmp_path, TWO_STEPS), model=model)
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    weights, buffers = model.vector(), model.buffer_vector()
    expected_loss = Client(context).gradients(x, y)
    expected = model.buffer_vector()
    model.load(weights, buffers)
    client = StemClient(context, StemParams(a=0.2))
    client.fresh = fresh
    client.direction = torch.ones_like(model.weights)
    client.previous = torch.full_like(model.weights, 0.5)
    assert client.gradients(x, y) == expected_loss
    assert np.array_equal(model.buffer_vector(), expected)
    assert np.array_equal(model.vector(), weights)
    assert not np.array_equal(expected, buffers)


def test_a_freeloader_sends_two_vectors(tmp_path: Path) -> None:
    context = place(tmp_path, TWO_STEPS)
    cls = freeloading(StemClient)
    vectors, _, _ = fit(cls, context, [0, 0], [1, 1], params=HALF, last_step=0.5)
    assert [vector.tolist() for vector in vectors] == [[0, 0], [0, 0]]


def test_the_papers_form_without_memory_takes_its_last_step_itself(tmp_path: Path) -> None:
    context, params = place(tmp_path, TWO_STEPS), StemParams(a=1.0)
    (update, _), _, _ = fit(StemClient, context, [0, 0], [7, 7], params=params, last_step=0.5)
    assert update.tolist() == [0.75, 2.25]
