"""FedDUAL's client by hand: two numbers a and b are the logits of classes 0 and 1."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Fitted, place
from torch import nn

from clients.base import ClientContext, Training
from clients.fedavg import FedAvgClient
from clients.feddual import FedDualClient, divergence, mixing
from fedsuite.core.flat_model import FlatModel
from strategies.feddual import FedDualParams

ADAPTIVE = FedDualParams(adaptive_loss=True)


class Logits(nn.Module):
    """Gives every row the logits (a, b)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.ParameterDict({"weight": nn.Parameter(torch.zeros(2))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc["weight"].expand(len(x), 2)


def context(folder: Path, module: nn.Module | None = None, **training: Any) -> ClientContext:
    """One row of class 0."""
    how = Training(batch_size=1, **training)
    return replace(place(folder, how), model=FlatModel(module or Logits()))


def fit(
    place: ClientContext,
    start: list[float],
    cls: Any = FedDualClient,
    lr: float = 0.5,
    params: FedDualParams = ADAPTIVE,
) -> Fitted:
    return cls(place, params).fit([np.array(start, np.float32)], {"lr": lr})


def test_divergence_by_hand_and_its_direction() -> None:
    """KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2; the other way round it is
    1/2 log 2/3 + 1/2 log 2. A second row without divergence halves the mean.
    """
    uneven, even = torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2)
    forward = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    backward = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)
    assert divergence(uneven, even).item() == pytest.approx(forward, abs=1e-6)
    assert divergence(even, uneven).item() == pytest.approx(backward, abs=1e-6)
    pair = divergence(torch.cat([uneven, even]), torch.cat([even, even]))
    assert pair.item() == pytest.approx(forward / 2, abs=1e-6)


@pytest.mark.parametrize("size", [1e-18, 1.0, 1e18])
def test_divergence_is_finite_and_not_negative(size: float) -> None:
    torch.manual_seed(0)
    for _ in range(20):
        a, b = torch.randn(3, 4) * size, torch.randn(3, 4) * size
        assert math.isfinite(divergence(a, b).item()) and divergence(a, b).item() >= -1e-6


def test_mixing_by_hand() -> None:
    assert mixing(0.3, 0.3) == 0.5
    assert mixing(1.0, 0.0) == pytest.approx(1 / (1 + math.exp(-1)))
    assert mixing(0.0, 1.0) == pytest.approx(1 / (1 + math.e))


def test_two_steps_by_hand(tmp_path: Path) -> None:
    """Step 1 at (0, 0): no divergence yet. Half of CE's gradient (-1/2, 1/2), lr 1/2: (1/8, -1/8).

    Step 2: p = sigmoid(1/4) = 0.562177. CE: p - 1 = -0.437823. KL from (1/2, 1/2) has the slope
    p (1 - p)(a - b) = 0.246134 / 4 = 0.061534. Half of both: -0.188145. a = 0.125 + 0.094072.
    """
    (update,), _, metrics = fit(context(tmp_path, local_steps=2), [0, 0])
    np.testing.assert_allclose(update, [0.219072, -0.219072], atol=1e-5)
    p = 1 / (1 + math.exp(-0.25))
    second = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    assert metrics["divergence"] == pytest.approx(second / 2, abs=1e-6)
    assert metrics["divergence"] > 1e-3 and metrics["share"] == 0.5


def test_the_divergence_has_a_gradient(tmp_path: Path) -> None:
    """Were it constant, half the cross-entropy would be all that trains: plain steps at half lr."""
    (ours,), _, _ = fit(context(tmp_path, local_steps=5), [0, 0])
    (half,), _, _ = fit(context(tmp_path, local_steps=5), [0, 0], FedAvgClient, lr=0.25)
    assert ours[0] < half[0] - 0.01, "held back by what it was sent"


def test_the_share_is_measured_anew_for_each_epoch(tmp_path: Path) -> None:
    """From (0, 0.1) the only row is wrong (accuracy 0) and after one step at lr 4 it is right.

    Step 1: q_1 = 1/(1 + e^-0.1) = 0.524979, CE's slope -q_1, half of it: a = 4 * 0.262490.
    The second epoch then weighs by sigmoid(1 - 0); the last epoch is not measured.
    """
    _, _, metrics = fit(context(tmp_path, local_epochs=2), [0, 0.1], lr=4.0)
    assert metrics["share"] == pytest.approx(1 / (1 + math.exp(-1)))
    _, _, metrics = fit(context(tmp_path, local_epochs=2), [0.1, 0], lr=0.1)
    assert metrics["share"] == 0.5, "right before and after"


def test_without_its_loss_it_is_plain_training(tmp_path: Path) -> None:
    off = FedDualParams(adaptive_loss=False)
    (ours,), _, metrics = fit(context(tmp_path, local_epochs=3), [0, 0.1], params=off)
    (plain,), _, _ = fit(context(tmp_path, local_epochs=3), [0, 0.1], FedAvgClient)
    assert ours.tobytes() == plain.tobytes() and "divergence" not in metrics


class Normed(nn.Module):
    """Batch normalisation and dropout before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.noise, self.fc = nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.noise(self.norm(x)))


def test_the_received_model_is_asked_without_noise_and_kept_as_it_was(tmp_path: Path) -> None:
    here = context(tmp_path, Normed(), local_epochs=2)
    here.task.split.train[0] = np.array([0, 0, 0])
    here = replace(here, training=Training(batch_size=3, local_epochs=2))
    client = FedDualClient(here, ADAPTIVE)
    start = here.model.vector()
    before = here.model.buffer_vector()
    client.fit([start], {"lr": 0.5})
    x = torch.randn(4, 2)
    assert not client.teacher.training
    assert torch.equal(client.teacher(x), client.teacher(x))
    kept = FlatModel(client.teacher)
    assert np.array_equal(kept.vector(), start) and np.array_equal(kept.buffer_vector(), before)
    assert not np.array_equal(here.model.buffer_vector(), before), "the own statistics did move"


def test_clients_of_one_process_share_nothing(tmp_path: Path) -> None:
    """The same work after somebody else's, in the same workspace, gives the same bits."""
    alone = fit(context(tmp_path, local_epochs=2), [0, 0.1])
    shared = context(tmp_path, local_epochs=2)
    fit(shared, [5, -5])
    again = fit(shared, [0, 0.1])
    assert again[0][0].tobytes() == alone[0][0].tobytes() and again[2] == alone[2]
