"""Ditto's own model by hand, beside FedAvg's training, which it leaves as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bowl import fit, place
from rounds import TWO_STEPS
from safetensors.numpy import load_file

from clients.base import Training
from clients.ditto import DittoClient
from clients.fedavg import FedAvgClient
from fedsuite.client_app import worker_for
from fedsuite.config import parse
from fedsuite.core.messages import Instruction
from fedsuite.nodes.worker import Worker
from strategies.ditto import DittoParams

Experiment = Callable[..., Path]
ONE_STEP = Training(local_steps=1, batch_size=1)


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    """Lam 1/2, lr 1/2, bottom (1, 3). Round 1 from w = 0: v = (1/2, 3/2). Round 2, w = (2, 2):
    v - ((-1/2, -3/2) + (-3/2, -1/2)/2)/2 = (1/2, 3/2) + (5/8, 7/8) = (9/8, 19/8).
    The update is that of w alone: half the way to the bottom.
    """
    params = DittoParams(lam=0.5)
    own = []
    for number, received in ((1, [0, 0]), (2, [2, 2])):
        context = place(tmp_path, ONE_STEP, number)
        (update,), _, metrics = fit(DittoClient, context, received, params=params)
        (plain,), _, expected = fit(FedAvgClient, place(tmp_path / "x", ONE_STEP), received)
        assert update.tobytes() == plain.tobytes() and metrics == expected
        own.append(context.state.load(after_round=True)["model"].tolist())
    assert own == [[0.5, 1.5], [1.125, 2.375]]


def test_without_a_pull_the_own_model_trains_alone(tmp_path: Path) -> None:
    """Two steps go three quarters of the way to (1, 3), and from there again."""
    for number, expected in ((1, [0.75, 2.25]), (2, [0.9375, 2.8125])):
        context = place(tmp_path, TWO_STEPS, number)
        fit(DittoClient, context, [0, 0], params=DittoParams(lam=0.0))
        assert context.state.load(after_round=True)["model"].tolist() == expected


def test_the_own_model_trains_on_batches_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the global one's, in another order."""
    plans: list[list[list[int]]] = []
    plainly = DittoClient.batches

    def noted(
        client: DittoClient, plan: list[np.ndarray]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        plans.append([batch.tolist() for batch in plan])
        return plainly(client, plan)

    monkeypatch.setattr(DittoClient, "batches", noted)
    worker = worker_for(parse({"algo": "ditto", "model": "mlp"}).to_json())
    train(worker, tmp_path)
    theirs, own = plans
    rows = [sorted(row for batch in plan for row in batch) for plan in (theirs, own)]
    assert rows[0] == rows[1] and len(theirs) == len(own) and theirs != own


def train(worker: Worker, folder: Path) -> Any:
    config = {"round": 1, "checkpoint-round": 0, "lr": 0.1}
    instruction = Instruction({"model": worker.initial}, config, {})
    return worker.fit(worker.client(0, instruction, folder), instruction)


def test_the_global_model_is_fedavgs_whatever_the_own_one_draws(
    experiment: Experiment, small_resnet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, which draws from the generator that both models share, and statistics."""
    from tasks import architectures

    plain = architectures.resnet18

    def dropping(shape: Any) -> torch.nn.Module:
        model = plain(shape)
        model.relu = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.5))
        return model

    monkeypatch.setattr(architectures, "resnet18", dropping)
    settings = {"model": "resnet18", "local_steps": 2, "client_test_fraction": 0.2}
    ditto, fedavg = (experiment(algo, **settings) for algo in ("ditto", "fedavg"))
    model = "model.safetensors"
    assert (ditto / model).read_bytes() == (fedavg / model).read_bytes()
    own = [load_file(f) for f in sorted((ditto / "models").glob("client-*.safetensors"))]
    assert len({state["bn1.running_mean"].tobytes() for state in own}) == 4


def test_the_pull_is_felt_by_default(experiment: Experiment) -> None:
    """Without it every client's own model is another; the global one is the same."""
    pulled, free = (experiment("ditto", local_steps=2, **how) for how in ({}, {"ditto.lam": 0.0}))
    name = "model.safetensors"
    assert (pulled / name).read_bytes() == (free / name).read_bytes()
    own = [sorted((folder / "models").glob("client-*.safetensors")) for folder in (pulled, free)]
    assert len(own[0]) == len(own[1]) == 4
    for one, other in zip(*own, strict=True):
        assert one.read_bytes() != other.read_bytes()


def test_before_its_first_round_a_client_is_scored_with_the_global_model(tmp_path: Path) -> None:
    worker = worker_for(parse({"algo": "ditto", "model": "mlp"}).to_json())
    config = {"round": 1, "checkpoint-round": 0, "lr": 0.1}
    instruction = Instruction({"model": worker.initial}, config, {})
    worker.evaluate(worker.client(0, instruction, tmp_path), instruction)
    assert np.array_equal(worker.model.vector(), worker.initial)
    train(worker, tmp_path)
    worker.evaluate(worker.client(0, instruction, tmp_path), instruction)
    own = load_file(tmp_path / "000000" / "000001.safetensors")["model"]
    assert np.array_equal(worker.model.vector(), own)
