"""Rounds without a grid: scripted replies, or clients on bowls with bottoms of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from bowl import Bowl, place
from numpy.typing import ArrayLike

from clients.base import Client, Training
from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round, RunInfo

TWO_STEPS = Training(local_steps=2, batch_size=1)
BOTTOMS = ((1.0, 3.0), (-1.0, 1.0))
Strategy = TypeVar("Strategy", bound=BaseStrategy)


def strategy_of(
    cls: type[Strategy],
    clients: int = 2,
    info: dict[str, Any] | None = None,
    **params: Any,
) -> Strategy:
    """A strategy for a model of two zeros."""
    settings: dict[str, Any] = {"num_rounds": 10, "learning_rate": lambda number: 0.5}
    sizes = dict.fromkeys(range(clients), 1)
    run_info = RunInfo(num_clients=clients, client_sizes=sizes, seed=0, **settings | (info or {}))
    strategy = cls(run_info, cls.Params(**params))
    strategy.model = np.zeros(2, np.float32)
    return strategy


def play(
    strategy: BaseStrategy,
    updates: Sequence[ArrayLike],
    clients: list[int] | None = None,
    steps: float | list[float] = 2.0,
    number: int = 1,
    examples: float | list[float] = 1.0,
    **arrays: Sequence[ArrayLike],
) -> Round:
    """Aggregate what clients sent, lr 0.5."""
    count = len(updates)
    rows = {"update": updates} | arrays
    this_round = Round(
        number=number,
        model=strategy.model,
        clients=list(range(count)) if clients is None else clients,
        arrays={name: np.array(values, np.float32) for name, values in rows.items()},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.broadcast_to(np.array(examples, np.float64), count).copy(),
        num_steps=np.broadcast_to(np.array(steps, np.float64), count).copy(),
        lr=0.5,
    )
    strategy.model = strategy.aggregate(this_round)
    return this_round


def meet(
    strategy: BaseStrategy,
    cls: type[Client],
    folder: Path,
    number: int = 1,
    training: Training = TWO_STEPS,
    clients: Sequence[int] = (0, 1),
) -> dict[str, list[Vector]]:
    """Let clients, each in its own bowl, train and the strategy aggregate; lr 0.5.

    Returns what the clients sent, by name.
    """
    shared = strategy.broadcast() | {"model": strategy.training_start()}
    sent: dict[str, list[Vector]] = {}
    for client in clients:
        context = place(folder / str(client), training, number, BOTTOMS[client])
        instruction = strategy.instruction(client)
        params = dataclasses.replace(strategy.params, **instruction.params)
        arrays = shared | instruction.arrays
        bowl = type("BowlClient", (Bowl, cls), {})(context, params)
        received = [arrays[name] for name in cls.receives]
        vectors, _, _ = bowl.fit(received, {"lr": 0.5} | instruction.config)
        for name, vector in zip(bowl.outgoing(), vectors, strict=True):
            sent.setdefault(name, []).append(vector)
    others: dict[str, Any] = {name: rows for name, rows in sent.items() if name != "update"}
    steps = training.local_steps
    play(strategy, sent["update"], list(clients), number=number, steps=steps, **others)
    return sent
