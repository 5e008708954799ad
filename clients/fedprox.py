"""FedProx's client (Li et al., MLSys 2020): the gradient of ``zeta/2 |w_local - w|^2`` is added."""

from __future__ import annotations

from typing import Any

import torch

from clients.base import Client
from fedsuite.core.vector import Vector


class FedProxClient(Client):
    """``w_i <- w_i - lr (g + zeta (w_i - w))``."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train as FedAvg does, held near the received model."""
        self.zeta = float(config["zeta"])
        self.pull = torch.tensor(parameters[0], device=self.model.device).mul_(-self.zeta)
        return super().fit(parameters, config)

    def correct_gradient(self) -> None:
        """Add ``zeta (w_i - w)``; the part that does not change in a round is precomputed."""
        if self.zeta:
            self.model.grads.add_(self.pull).add_(self.model.weights, alpha=self.zeta)
