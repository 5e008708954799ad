"""A server that keeps every client's last vectors and has no model of its own.

FedAMP, FedFomo and APPLE build on it. A client's update is ``w_i - w_0`` with ``w_0`` the run's
first model, so a row of zeros is that model: what a client starts from, and what a freeloader has.
Rows are float32, ``N P`` numbers in each checkpoint and in memory, or in a file if nodes share the
run's disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedsuite.core.vector import Matrix, Vector
from strategies.base import BaseStrategy, Round, RunInfo


class PoolStrategy(BaseStrategy):
    """Keeps the vectors named in ``kept``, one row per client, and which clients have sent any."""

    shares_model: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = ("update",)

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.pool: dict[str, Matrix] = {}
        self.known = np.zeros(info.num_clients, dtype=bool)
        self.training_round = 0

    def rows(self, name: str = "update") -> Matrix:
        """Return all clients' last vectors of one name; zeros for a client that has sent none."""
        if name not in self.pool:
            shape = (self.info.num_clients, self.lengths()[name])
            self.pool[name] = self.vectors.zeros(shape)
        return self.pool[name]

    def aggregate(self, this_round: Round) -> Vector:
        """Keep what clients sent; the initial model does not change."""
        for name in self.kept:
            kept = self.rows(name)
            for client, row in zip(this_round.clients, this_round.arrays[name], strict=True):
                kept[client] = row
        self.known[this_round.clients] = True
        return this_round.model

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Note in ``training_round`` which round the instructions are for."""
        self.training_round = server_round
        return super().configure_train(server_round, arrays, config, grid)

    def state(self) -> dict[str, Any]:
        """Return all rows and which clients are known."""
        rows = {f"pool.{name}": matrix for name, matrix in self.pool.items()}
        return super().state() | rows | {"known": self.known}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        super().load_state(state)
        self.known = np.array(state["known"], dtype=bool)
        names = [name for name in self.kept if f"pool.{name}" in state]
        self.pool = {name: np.array(state[f"pool.{name}"]) for name in names}
