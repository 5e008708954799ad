"""Batch-norm statistics and modes, by hand: whose statistics score, and when they move.

The model normalises one number and weighs it: logits ``(a, b) * (x - mean) / sqrt(var)``. In
training the batch (1, 3) has mean 2 and variance 1, so it becomes (-1, 1); running statistics move
three quarters of the way to mean 2 and (unbiased) variance 2.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clients.apple import AppleClient
from clients.base import ClientContext, Training
from clients.fedadw import FedAdwClient
from clients.feddual import FedDualClient
from clients.fedfomo import FedFomoClient
from clients.local import LocalClient
from clients.pfedme import PFedMeClient
from clients.state import ClientState
from fedsuite.core.flat_model import FlatModel
from strategies.apple import AppleParams
from strategies.fedadw import FedAdwParams
from strategies.feddual import FedDualParams
from strategies.fedfomo import FedFomoParams
from strategies.pfedme import PFedMeParams

TRAIN_X, TRAIN_Y = [1.0, 3.0], [0, 1]
TEST_X, TEST_Y = [2.5, 3.0, 10.0], [1, 1, 1]  # their own mean is 5.17
UP = np.array([-1, 1], np.float32)  # class 1 above the mean
Z = np.array([-1.0, 1.0])  # the training batch, normalised by itself


class Normed(nn.Module):
    """Batch normalisation without offsets, then a layer without offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, eps=1e-12, momentum=0.75, affine=False)
        self.fc = nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(x))


def stats(mean: float, var: float) -> np.ndarray:
    return np.array([mean, var], np.float32)


def moved(before: np.ndarray, times: int = 1) -> np.ndarray:
    """Running statistics after so many passes over the training batch."""
    for _ in range(times):
        before = 0.25 * before + 0.75 * np.array([2.0, 2.0])
    return before


def context(
    folder: Path,
    received: np.ndarray,
    number: int = 1,
    client: int = 0,
    clients: int = 1,
    epochs: int = 1,
) -> ClientContext:
    """A client of a process that was left in evaluation mode, with the received statistics."""
    x = torch.tensor(TRAIN_X + TEST_X)[:, None]
    y = torch.tensor(TRAIN_Y + TEST_Y)
    split = SimpleNamespace(train=[np.arange(2)] * clients, own_test=[np.arange(2, 5)] * clients)
    task: Any = SimpleNamespace(
        rows=lambda rows: (x[rows], y[rows]),
        labels=lambda rows: y.numpy()[rows],
        shape=SimpleNamespace(num_classes=2),
        split=split,
    )
    model = FlatModel(Normed())
    model.module.eval()
    model.load(np.zeros(2, np.float32), received)
    how = Training(local_epochs=epochs, batch_size=2)
    state = ClientState(folder, client, number, 0)
    start = np.zeros(2, np.float32)
    return ClientContext(client, number, 0, task, model, start, stats(0, 1), state, how)


def kept(folder: Path) -> dict[str, np.ndarray]:
    return ClientState(folder, 0, 99, 0).load()


def loss(weights: np.ndarray, mean: float, var: float) -> float:
    """The training rows' mean cross-entropy under some statistics."""
    z = (np.array(TRAIN_X) - mean) / math.sqrt(var)
    logits = z[:, None] * np.asarray(weights, np.float64)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return float(-logs[[0, 1], TRAIN_Y].mean())


def gradient(weights: np.ndarray, z: np.ndarray = Z) -> np.ndarray:
    """The cross-entropy's gradient by the weights, where ``z`` enters the last layer."""
    logits = z[:, None] * np.asarray(weights, np.float64)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return ((p - np.eye(2)[TRAIN_Y]) * z[:, None]).mean(0)


# pFedMe


PFEDME = PFedMeParams(lam=1.0, inner_steps=2, personal_lr=0.5)


def test_pfedme_trains_on_the_batchs_statistics_and_keeps_its_own(tmp_path: Path) -> None:
    """From (0, 0), theta moves by -g/2 = (-1/4, 1/4); then by g and the pull towards (0, 0)."""
    here = context(tmp_path, stats(7, 3))
    PFedMeClient(here, PFEDME).fit([np.zeros(2, np.float32)], {"lr": 0.5})
    first = -0.5 * gradient(np.zeros(2))
    np.testing.assert_allclose(first, [-0.25, 0.25])
    second = first - 0.5 * (gradient(first) + first)
    np.testing.assert_allclose(kept(tmp_path)["theta"], second, rtol=1e-6)
    np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(stats(7, 3), 2), rtol=1e-6)


@pytest.mark.parametrize(("mean", "correct"), [(2.0, 3), (2.7, 2), (9.9, 1)])
def test_pfedme_is_scored_with_its_own_statistics(
    tmp_path: Path, mean: float, correct: int
) -> None:
    """Rows 2.5, 3 and 10 above the kept mean are right; the received mean, 20, spares none, and
    their own, 5.17, would spare one.
    """
    here = context(tmp_path, stats(20, 1))
    here.state.save({"theta": UP, "buffers": stats(mean, 4)})
    here.model.module.train()
    _, count, metrics = PFedMeClient(here, PFEDME).evaluate([-UP], {})
    assert (metrics["correct"], count) == (correct, 3)
    assert here.model.buffer_vector().tolist() == stats(mean, 4).tolist(), "scoring moves nothing"


def test_pfedme_without_a_round_is_scored_as_received(tmp_path: Path) -> None:
    here = context(tmp_path, stats(2.7, 1))
    _, _, metrics = PFedMeClient(here, PFEDME).evaluate([UP], {})
    assert metrics["correct"] == 2


def test_pfedmes_round_starts_from_what_is_received_not_from_what_it_kept(tmp_path: Path) -> None:
    """Theta's statistics of last round are for scoring; training begins with those received."""
    context(tmp_path, stats(0, 1)).state.save({"theta": UP, "buffers": stats(50, 50)})
    here = context(tmp_path, stats(7, 3), number=2)
    off = PFedMeParams(lam=1.0, inner_steps=1, personal_lr=0.5)
    PFedMeClient(here, off).fit([np.zeros(2, np.float32)], {"lr": 0.5})
    np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(stats(7, 3)), rtol=1e-6)


# Local


def test_a_client_alone_trains_and_is_scored_with_its_own(tmp_path: Path) -> None:
    """What is in the process, 7 and 3 or 20 and 1, is somebody else's; its own begin at (0, 1)."""
    here = context(tmp_path, stats(7, 3))
    LocalClient(here).fit([], {"lr": 0.5})
    np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(stats(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(kept(tmp_path)["model"], [-0.25, 0.25], rtol=1e-6)
    after = context(tmp_path, stats(20, 1))
    _, _, metrics = LocalClient(after).evaluate([], {})
    assert metrics["correct"] == 3, "all are above 1.5"
    assert after.model.buffer_vector().tolist() == kept(tmp_path)["buffers"].tolist()


# FedFomo

FEDFOMO = FedFomoParams(validation=0.0)
OWN, START = np.array([-0.5, 0.5], np.float32), np.array([0.2, 0.0], np.float32)
PEER = np.array([-2, 2], np.float32)


def mix(folder: Path) -> tuple[ClientContext, list[np.ndarray], dict[str, Any]]:
    """Round 2 of a client with a model and a start, and two others' models of equal weights."""
    state = {"model": OWN, "buffers": stats(2, 4), "start": START, "start_buffers": stats(1, 9)}
    context(folder, stats(7, 3), clients=3).state.save(state)
    here = context(folder, stats(7, 3), number=2, clients=3)
    here.model.module.train()  # as a client that trained before it in the process has left it
    peers, statistics = np.stack([PEER, PEER]), np.stack([stats(2, 1), stats(2.5, 16)])
    scalars = {"lr": 0.5, "peer-ids": [1, 2]}
    vectors, _, metrics = FedFomoClient(here, FEDFOMO).fit([peers, statistics], scalars)
    return here, vectors, metrics


def expected_gains() -> np.ndarray:
    """``(L(start) - L(w_j)) / |w_j - start|``, each model under the statistics it came with."""
    start = loss(START, 1, 9)
    candidates = [(OWN, 2, 4), (PEER, 2, 1), (PEER, 2.5, 16)]
    return np.array([(start - loss(*c)) / np.linalg.norm(c[0] - START) for c in candidates])


def test_fedfomo_judges_every_model_under_its_own_statistics(tmp_path: Path) -> None:
    """The others differ in statistics alone: by the batch's, or by anyone else's, they tie."""
    _, (_, _, gains), metrics = mix(tmp_path)
    expected = expected_gains()
    assert (expected > 0).all() and expected[1] > expected[2] + 0.05
    np.testing.assert_allclose(gains, [0, *expected[1:]], rtol=1e-5)
    assert metrics["own-weight"] == pytest.approx(expected[0] / expected.sum(), rel=1e-5)


def test_fedfomo_starts_from_mixed_statistics_and_trains_on(tmp_path: Path) -> None:
    here, (_, statistics, _), _ = mix(tmp_path)
    weights = expected_gains() / expected_gains().sum()
    start = weights @ np.stack([OWN, PEER, PEER])
    buffers = weights @ np.stack([stats(2, 4), stats(2, 1), stats(2.5, 16)])
    np.testing.assert_allclose(kept(tmp_path)["start"], start, rtol=1e-5)
    np.testing.assert_allclose(kept(tmp_path)["start_buffers"], buffers, rtol=1e-5)
    np.testing.assert_allclose(kept(tmp_path)["model"], start - 0.5 * gradient(start), rtol=1e-5)
    np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(buffers), rtol=1e-5)
    np.testing.assert_allclose(statistics, moved(buffers) - stats(0, 1), rtol=1e-5)
    assert here.model.module.training


def test_fedfomo_alone_goes_on_from_its_own_statistics(tmp_path: Path) -> None:
    """The other's model is far off and its own weights are those of its start: nobody gains.

    The statistics of the start, judged last, are not what it goes on from.
    """
    state = {"model": OWN, "buffers": stats(2, 4), "start": OWN, "start_buffers": stats(1, 9)}
    context(tmp_path, stats(7, 3), clients=2).state.save(state)
    here = context(tmp_path, stats(7, 3), number=2, clients=2)
    scalars = {"lr": 0.5, "peer-ids": [1]}
    bad, theirs = -9 * UP[None], stats(30, 1)[None]
    FedFomoClient(here, FEDFOMO).fit([bad, theirs], scalars)
    np.testing.assert_allclose(kept(tmp_path)["start_buffers"], stats(2, 4))
    np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(stats(2, 4)), rtol=1e-6)


# FedDUAL

FEDDUAL = FedDualParams(adaptive_loss=True)


def divergence(local: np.ndarray, z: np.ndarray, sent: np.ndarray, sent_z: np.ndarray) -> float:
    """Mean over rows of ``KL(p || q)`` between two models' class probabilities."""

    def logs(weights: np.ndarray, z: np.ndarray) -> np.ndarray:
        logits = z[:, None] * np.asarray(weights, np.float64)
        return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))

    p, q = logs(local, z), logs(sent, sent_z)
    return float((np.exp(p) * (p - q)).sum(1).mean())


def test_feddual_asks_the_received_model_under_the_received_statistics(tmp_path: Path) -> None:
    """Under mean 0 and variance 4 the rows are 1/2 and 3/2 to it, -1 and 1 to the one that trains.

    In training mode too there would be no divergence at all in the first step.
    """
    here = context(tmp_path, stats(0, 4))
    here.model.module.train()  # as a client that trained before it in the process has left it
    _, _, metrics = FedDualClient(here, FEDDUAL).fit([UP], {"lr": 0.5})
    expected = divergence(UP, Z, UP, np.array([0.5, 1.5]))
    assert expected > 0.3 and metrics["divergence"] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(here.model.buffer_vector(), moved(stats(0, 4)), rtol=1e-6)


def test_feddual_compares_accuracies_in_evaluation_mode_and_trains_on(tmp_path: Path) -> None:
    """Above mean 0 both rows are class 1: one of two is right. After an epoch the mean is 1.5 and
    both are. Normalised by themselves both would be right before, too.

    The second epoch moves the statistics again, unless it is left in evaluation mode.
    """
    here = context(tmp_path, stats(0, 4), epochs=2)
    _, _, metrics = FedDualClient(here, FEDDUAL).fit([UP], {"lr": 0.01})
    assert metrics["share"] == pytest.approx(1 / (1 + math.exp(-0.5)))
    np.testing.assert_allclose(here.model.buffer_vector(), moved(stats(0, 4), 2), rtol=1e-6)


def test_feddual_keeps_the_received_statistics_for_the_whole_round(tmp_path: Path) -> None:
    """Two epochs at a rate so small that the weights stay: the divergence is the same in both."""
    here = context(tmp_path, stats(0, 4), epochs=2)
    _, _, metrics = FedDualClient(here, FEDDUAL).fit([UP], {"lr": 1e-8})
    expected = divergence(UP, Z, UP, np.array([0.5, 1.5]))
    assert metrics["divergence"] == pytest.approx(expected, rel=1e-5)


# FedADW

FEDADW = FedAdwParams(ala_percent=100, ala_max_epochs=3)


def test_fedadw_is_scored_with_the_received_statistics(tmp_path: Path) -> None:
    """Learning the mixture is training, which moves statistics; they are restored before scoring.

    Moved to mean 2 all three rows would be right; above 2.7 two are, in both scores.
    """
    ones = np.ones(2, np.float32)
    state = {"model": 3 * UP, "weights": ones, "learnt": np.zeros(1, np.float32)}
    here = context(tmp_path, stats(2.7, 1))
    here.state.save(state)
    _, _, metrics = FedAdwClient(here, FEDADW).evaluate([UP], {})
    assert (metrics["correct"], metrics["global-correct"]) == (2, 2)
    assert here.model.buffer_vector().tolist() == stats(2.7, 1).tolist()


def test_fedadw_learns_its_mixture_on_the_batchs_statistics(tmp_path: Path) -> None:
    """One epoch of one batch at the global weights (1, -1): W = 1 - rate * g * gap, within [0, 1],
    and the round then trains from there with statistics as received.
    """
    own, received = 3 * UP, -UP
    ones = np.ones(2, np.float32)
    before = {"model": own, "weights": ones, "learnt": np.ones(1, np.float32)}
    context(tmp_path, stats(7, 3)).state.save(before)
    here = context(tmp_path, stats(7, 3), number=2)
    params = FedAdwParams(ala_percent=100, ala_lr=0.1)
    FedAdwClient(here, params).fit([received], {"lr": 0.5})
    gap = received - own
    weights = np.clip(1 - 0.1 * gradient(received) * gap, 0, 1)
    assert (weights < 1).all()
    np.testing.assert_allclose(kept(tmp_path)["weights"], weights, rtol=1e-5)
    start = own + gap * weights
    np.testing.assert_allclose(kept(tmp_path)["model"], start - 0.5 * gradient(start), rtol=1e-5)
    np.testing.assert_allclose(here.model.buffer_vector(), moved(stats(7, 3)), rtol=1e-6)


# APPLE


def test_apple_trains_on_the_batchs_statistics_and_keeps_its_own(tmp_path: Path) -> None:
    """One core, (-1, 1), which is the personal model; its statistics begin at (0, 1)."""
    params = AppleParams(p_lr=0.0)
    weights = UP.astype(np.float64)
    for number in (1, 2):
        here = context(tmp_path, stats(7, 3), number)
        AppleClient(here, params).fit(
            [UP[None], np.ones(1, np.float32)], {"lr": 0.5, "penalty": 0.0}
        )
        weights -= 0.5 * gradient(weights)
        np.testing.assert_allclose(kept(tmp_path)["core"], weights, rtol=1e-5)
        np.testing.assert_allclose(kept(tmp_path)["buffers"], moved(stats(0, 1), number), rtol=1e-6)
