"""FedBaC's client: whom it scores on which rows, and what it does not remember."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import place
from torch import nn

from clients.base import ClientContext, Received, Training
from clients.fedbac import FedBacClient, cosine_gradient
from fedsuite.core.flat_model import FlatModel
from strategies.fedbac import FedBacParams

TO_CLASS_ONE = np.array([0, 0, 0, 9], np.float32)  # logits (0, 9) for every row


def labelled(folder: Path, train: list[int], test: list[int]) -> ClientContext:
    """A client whose training and test rows have these classes."""
    labels = np.array([*train, *test])
    parts = np.split(np.arange(len(labels)), [len(train)])
    task: Any = SimpleNamespace(
        rows=lambda rows: (torch.zeros(len(rows), 1), torch.tensor(labels[rows])),
        split=SimpleNamespace(train=[parts[0]], own_test=[parts[1]]),
        shape=SimpleNamespace(num_classes=2),
    )
    context = place(folder, Training(local_steps=1))
    return dataclasses.replace(context, task=task, model=FlatModel(nn.Linear(1, 2)))


@pytest.mark.parametrize(
    ("test", "scored", "accuracy"), [([1, 0], True, 0.5), ([], True, 0.75), ([1, 0], False, 0.0)]
)
def test_the_received_model_is_scored_on_the_own_test_rows_or_else_on_all(
    tmp_path: Path, test: list[int], scored: bool, accuracy: float
) -> None:
    """It says class 1 to everything: right for half of the test rows, three of four others."""
    context = labelled(tmp_path, [1, 1, 0, 1], test)
    client = FedBacClient(context, FedBacParams(score_clients=scored))
    received = Received({"model": TO_CLASS_ONE, "momentum": np.zeros(4, np.float32)}, {})
    assert client.inspect(received) == {"accuracy": accuracy}


def test_an_update_that_is_no_number_is_not_remembered(tmp_path: Path) -> None:
    """Along (0, 1) in round 1, which is remembered with cosine 1; then nothing comparable."""
    momentum = np.array([0, 1], np.float32)
    for number, update in ((1, [0.0, 2.0]), (2, [0.0, np.inf])):
        context = place(tmp_path, Training(local_steps=1), number)
        client = FedBacClient(context, FedBacParams(history=2))
        received = Received({"momentum": momentum}, {"counted": number - 1})
        sent = client.describe(np.array(update, np.float32), received)
        assert sent["consensus"] == (1.0 if number == 1 else 0.0) and sent["reliability"] == 1.0
    state = context.state.load(after_round=True)
    assert state["cosines"].tolist() == [[0, 0], [0, 0], [1, 1]]
    assert state["round"].tolist() == [2]


def test_the_gradient_of_a_cosine_at_length_one() -> None:
    """At (1, 0) the cosine with (0, 1) grows along (0, 1); at (0, 0) it has no direction."""
    along = torch.tensor([0.0, 1.0])
    assert cosine_gradient(torch.tensor([1.0, 0.0]), along).tolist() == [0, 1]
    assert cosine_gradient(torch.zeros(2), along).tolist() == [0, 0]
