"""FedProx's client (Li et al., MLSys 2020): the gradient of ``zeta/2 |w_local - w|^2`` is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.base import Client, Received, Reply
from clients.proximal import ProximalPull

if TYPE_CHECKING:
    from strategies.fedprox import FedProxParams


class FedProxClient(Client):
    """``w_i <- w_i - lr (g + zeta (w_i - w))``."""

    params: FedProxParams

    def train_round(self, received: Received) -> Reply:
        """Train as FedAvg does, held near the received model."""
        self.pull = ProximalPull(self, received["model"], self.params.zeta)
        return super().train_round(received)

    def correct_gradient(self) -> None:
        """Add ``zeta (w_i - w)``."""
        self.pull.add()
