"""A client whose loss is a bowl: ``|w - x|^2 / 2``, so that the gradient is ``w - x``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from clients.base import Client, ClientContext, Training
from clients.state import ClientState
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.vector import Vector

Fitted = tuple[list[Vector], int, dict[str, Any]]  # vectors, samples, numbers beside them


class Point(nn.Module):
    """Two numbers, in two layers of one."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.ParameterDict({"weight": nn.Parameter(torch.zeros(1, 1))})
        self.top = nn.ParameterDict({"weight": nn.Parameter(torch.zeros(1, 1))})

    def at(self) -> torch.Tensor:
        """The point."""
        return torch.cat([self.low["weight"], self.top["weight"]]).flatten()


class Bowl:
    """Mixed into a client."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.model.module.at() - x[0]).square().sum() / 2  # type: ignore[attr-defined]


def place(
    folder: Path,
    training: Training,
    server_round: int = 1,
    bottom: tuple[float, float] = (1.0, 3.0),
) -> ClientContext:
    """A client with one row, ``x = bottom``, of class 0 out of 2."""
    row = torch.tensor([bottom])
    task: Any = SimpleNamespace(
        rows=lambda indices: (row[indices], torch.zeros(len(indices), dtype=torch.long)),
        labels=lambda indices: np.zeros(len(indices), dtype=np.int64),
        shape=SimpleNamespace(num_classes=2),
        split=SimpleNamespace(train=[np.array([0])], own_test=[np.array([0])]),
    )
    model = FlatModel(Point())
    state = ClientState(folder, 0, server_round, 0)
    initial = model.vector()
    return ClientContext(0, server_round, 0, task, model, initial, initial[:0], state, training)


def among_two(folder: Path, training: Training, number: int = 1, client: int = 0) -> ClientContext:
    """The bowl's client as one of two with the same row."""
    context = place(folder, training, number)
    context.task.split.train.append(np.array([0]))
    context.task.split.own_test.append(np.array([0]))
    return dataclasses.replace(context, client=client, state=ClientState(folder, client, number, 0))


def kept(folder: Path, client: int = 0) -> dict[str, np.ndarray]:
    """Return what a client has kept in its last round."""
    return ClientState(folder, client, 99, 0).load()


def fit(
    cls: type[Client],
    context: ClientContext,
    *vectors: ArrayLike,
    params: Any = None,
    lr: float = 0.5,
    **scalars: Any,
) -> Fitted:
    """Train a client of some algorithm on the bowl, with its settings and its own scalars."""
    parameters = [np.array(vector, np.float32) for vector in vectors]
    names = {name.replace("_", "-"): value for name, value in scalars.items()}
    client = type("BowlClient", (Bowl, cls), {})(context, params)
    return client.fit(parameters, {"lr": lr, **names})
