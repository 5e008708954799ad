"""FedACG's client (Kim et al., CVPR 2024): starts from the look-ahead point and is held near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.base import Client, Received, Reply
from clients.proximal import ProximalPull

if TYPE_CHECKING:
    from strategies.fedacg import FedAcgParams


class FedAcgClient(Client):
    """``w_i <- w_i - lr (g + beta (w_i - received))``: FedProx around the received model."""

    params: FedAcgParams

    def train_round(self, received: Received) -> Reply:
        """Train as FedProx does with ``zeta = beta``."""
        self.pull = ProximalPull(self, received["model"], self.params.beta)
        return super().train_round(received)

    def correct_gradient(self) -> None:
        """Add ``beta (w_i - received)``."""
        self.pull.add()
