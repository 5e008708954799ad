"""The suite's FedAvg, waiting for its turn before each round: ``algo=benchmarks.gated_fedavg:...``.

The wait is written into the round's record as ``gate_seconds`` and taken off its time.
"""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from benchmarks.gate import own_gate
from clients.fedavg import FedAvgClient
from fedsuite.core.vector import Vector
from fedsuite.registry import Algorithm
from strategies.base import Round
from strategies.fedavg import FedAvg


class GatedFedAvg(FedAvg):
    """FedAvg behind a gate; nothing else differs."""

    waited = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait for the turn, then continue as FedAvg does."""
        self.waited = own_gate().wait(server_round)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate(self, this_round: Round) -> Vector:
        """Record the wait and average."""
        this_round.scalars["gate_seconds"] = self.waited
        return super().aggregate(this_round)


ALGORITHM = Algorithm(GatedFedAvg, FedAvgClient)
