"""FedAMP's client (Huang et al., AAAI 2021): trains its own model, pulled to its cloud model.

The gradient of ``lam / (2 alpha) |w - u_i|^2`` is added to each step.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from clients.local import LocalClient
from fedsuite.core.vector import Vector


class FedAmpClient(LocalClient):
    """``w_i <- w_i - lr (g + lam/alpha (w_i - u_i))``, from its own last model on."""

    receives: ClassVar[tuple[str, ...]] = ("cloud",)
    sends: ClassVar[tuple[str, ...]] = ("update",)

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train the own model and send how far it is from the run's first one."""
        cloud = parameters[0]
        self.strength = config["lam"] / config["alpha"] if cloud.size else 0.0
        self.pull = torch.tensor(cloud, device=self.model.device).mul_(-self.strength)
        _, count, metrics = super().fit(parameters, config)
        return [self.model.vector() - self.context.initial], count, metrics

    def correct_gradient(self) -> None:
        """Add the pull; the part that does not change in a round is precomputed."""
        if self.strength:
            self.model.grads.add_(self.pull).add_(self.model.weights, alpha=self.strength)
