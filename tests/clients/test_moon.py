"""MOON's contrastive loss by hand, and whose features it compares."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clients.base import ClientContext, Training
from clients.fedavg import FedAvgClient
from clients.moon import MoonClient, contrastive
from clients.state import ClientState
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.vector import Vector
from strategies.moon import MoonParams

Experiment = Callable[..., Path]
X, Y = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.5, -2.0]]), torch.tensor([0, 1, 1])
INITIAL = np.array([1, 0, 0, 1, 0.5, -0.5, -0.5, 0.5], np.float32)


def place(folder: Path, number: int = 1, layers: list[nn.Module] | None = None) -> ClientContext:
    """A client with three rows, one batch; ``W1`` makes features, ``W2`` of these logits."""
    task: Any = SimpleNamespace(
        rows=lambda rows: (X[rows], Y[rows]), split=SimpleNamespace(train=[np.arange(3)])
    )
    body = layers or [nn.Linear(2, 2, bias=False)]
    model = FlatModel(nn.Sequential(*body, nn.Linear(2, 2, bias=False)))
    state, how = ClientState(folder, 0, number, 0), Training(batch_size=3)
    initial = INITIAL if not layers else model.vector()
    buffers = model.buffer_vector()
    return ClientContext(0, number, 0, task, model, initial, buffers, state, how)


def fit(context: ClientContext, model: Vector, **params: float) -> tuple[MoonClient, Vector]:
    client = MoonClient(context, MoonParams(**params))
    (update,), _, _ = client.fit([model], {"lr": 0.5})
    return client, update


def weights(module: nn.Module) -> Vector:
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


def test_the_loss_by_hand() -> None:
    """Cosines 1 and 0 over 1/2: -log e^2/(e^2 + 1); 0 and 1: -log 1/(1 + e^2). Lengths do not
    count.
    """
    near, far = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.1]])
    for features, expected in (([1.0, 0.0], log(1 + exp(-2))), ([0.0, 7.0], log(1 + exp(2)))):
        found = contrastive(torch.tensor([features]), near, far, 0.5)
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_two_rounds_against_autograd(tmp_path: Path) -> None:
    """A step of the second round, from a new global model, beside the model of the first."""
    _, update = fit(place(tmp_path), INITIAL, mu=2.0, temperature=0.25)
    last = INITIAL + update
    received = np.array([0, 1, 1, 0, 1, 0, 0, -1], np.float32)
    _, update = fit(place(tmp_path, 2), received, mu=2.0, temperature=0.25)
    vector = torch.tensor(received, requires_grad=True)
    features = X @ vector[:4].view(2, 2).T
    near, far = (X @ torch.tensor(v[:4]).view(2, 2).T for v in (received, last))
    similar, unlike = (F.cosine_similarity(features, other) for other in (near, far))
    contrast = -(similar / 0.25 - torch.logsumexp(torch.stack([similar, unlike]) / 0.25, 0)).mean()
    loss = F.cross_entropy(features @ vector[4:].view(2, 2).T, Y) + 2.0 * contrast
    loss.backward()
    assert vector.grad is not None
    np.testing.assert_allclose(update, -0.5 * vector.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_the_previous_model_is_the_clients_own_and_not_the_global_one(tmp_path: Path) -> None:
    client, update = fit(place(tmp_path), 2 * INITIAL)
    assert np.array_equal(weights(client.last), INITIAL), "at first the initial model"
    assert np.array_equal(weights(client.shared), 2 * INITIAL), "which training does not move"
    later, _ = fit(place(tmp_path, 4), 3 * INITIAL)
    np.testing.assert_allclose(weights(later.last), 2 * INITIAL + update, rtol=1e-6)
    assert np.array_equal(weights(later.shared), 3 * INITIAL)


def test_in_the_first_round_both_models_are_one_and_pull_nowhere(tmp_path: Path) -> None:
    _, update = fit(place(tmp_path / "moon"), INITIAL)
    (plain,), _, _ = FedAvgClient(place(tmp_path / "plain")).fit([INITIAL], {"lr": 0.5})
    np.testing.assert_allclose(update, plain, atol=1e-6)


def test_models_to_compare_with_have_statistics_of_their_own(tmp_path: Path) -> None:
    """They score in evaluation mode, and move no statistics, of others neither."""
    context = place(tmp_path, layers=[nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False)])
    client, _ = fit(context, context.initial)
    assert not client.shared.training and not client.last.training
    first, own = client.shared[0], context.model.module[0]  # type: ignore[index]
    assert first.running_mean.tolist() == [0, 0]
    np.testing.assert_allclose(own.running_mean, 0.1 * X.mean(0), rtol=1e-5)
    kept = context.state.load(after_round=True)
    assert np.array_equal(kept["buffers"], context.model.buffer_vector())


def test_without_mu_it_is_fedavg_and_with_it_not(experiment: Experiment, tmp_path: Path) -> None:
    def model(algo: str, **settings: object) -> bytes:
        folder = experiment(algo, local_steps=1, partition="sizes", **settings)
        return (folder / "model.safetensors").read_bytes()

    assert model("moon", **{"moon.mu": 0}) == model("fedavg") != model("moon")
    context = place(tmp_path)
    assert MoonClient(context, MoonParams(mu=0.0)).stackable
    assert not MoonClient(context, MoonParams()).stackable
    fit(context, INITIAL, mu=0.0)
    assert not context.state.load(after_round=True), "nothing is kept for nothing"
