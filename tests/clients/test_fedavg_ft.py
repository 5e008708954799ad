"""Fine-tuning before the score: by hand, repeatable, and of no effect on the global model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Bowl, place

from clients.base import Evaluation, Received, Training
from clients.fedavg_ft import FedAvgFtClient
from fedsuite.client_app import worker_for
from fedsuite.config import parse
from fedsuite.core.files import read_lines
from fedsuite.core.messages import Instruction
from strategies.fedavg_ft import FedAvgFtParams
from tasks import architectures

Experiment = Callable[..., Path]


class Watched(Bowl, FedAvgFtClient):
    """Has nothing to score."""

    def score(self) -> Evaluation:
        return 0.0, 0, {"model": self.model.vector().tolist()}


@pytest.mark.parametrize(("epochs", "expected"), [(0, [0, 0]), (1, [0.5, 1.5]), (2, [0.75, 2.25])])
def test_epochs_from_the_received_model_by_hand(
    tmp_path: Path, epochs: int, expected: list[float]
) -> None:
    """Each goes half the way to (1, 3), whatever the round's local steps are; nothing is kept."""
    context = place(tmp_path, Training(local_steps=7, batch_size=1))
    client = Watched(context, FedAvgFtParams(epochs=epochs))
    received = Received({"model": np.zeros(2, np.float32)}, {"lr": 0.5})
    assert client.evaluate_round(received)[2]["model"] == expected
    assert not context.state.load(after_round=True)


def test_dropout_is_drawn_for_the_client_and_the_round(
    tmp_path: Path, small_resnet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the process has drawn before, as it would for others of its cohort."""
    plain = architectures.resnet18

    def dropping(shape: Any) -> torch.nn.Module:
        model = plain(shape)
        model.relu = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.5))
        return model

    monkeypatch.setattr(architectures, "resnet18", dropping)
    config = parse({"algo": "fedavg-ft", "model": "resnet18", "seed": 71})
    worker = worker_for(config.to_json())

    def tuned(server_round: int) -> bytes:
        header = {"round": server_round, "checkpoint-round": 0, "lr": 0.1}
        arrays = {"model": worker.initial, "buffers": worker.initial_buffers}
        instruction = Instruction(arrays, header, {})
        worker.evaluate(worker.client(0, instruction, tmp_path), instruction)
        return worker.model.vector().tobytes()

    first = tuned(1)
    torch.rand(3)
    assert tuned(1) == first != tuned(2)


def test_the_global_model_is_fedavgs(experiment: Experiment) -> None:
    """Without epochs the scores are FedAvg's too; the rate of fine-tuning is the round's."""
    settings: dict[str, Any] = {
        "local_steps": 1,
        "client_test_fraction": 0.2,
        "personal_eval": "on",
        "lr_schedule": "exponential",
        "lr_decay": 0.5,
    }
    plain = experiment("fedavg", **settings)
    tuned = experiment("fedavg-ft", **settings)
    none = experiment("fedavg-ft", **settings, **{"fedavg-ft.epochs": 0})
    model = "model.safetensors"
    assert len({(folder / model).read_bytes() for folder in (plain, tuned, none)}) == 1

    def losses(folder: Path) -> list[float]:
        rows = read_lines(folder / "clients.jsonl")
        return [row["loss"] for row in rows if row["phase"] == "evaluate"]

    assert losses(plain) == losses(none) != losses(tuned)
