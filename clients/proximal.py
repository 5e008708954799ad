"""The proximal term ``strength/2 |w_i - target|^2`` that several algorithms add to the loss."""

from __future__ import annotations

from clients.base import Client
from fedsuite.core.vector import Vector


class ProximalPull:
    """Adds ``strength (w_i - target)`` to a gradient; the constant part is computed once."""

    def __init__(self, client: Client, target: Vector, strength: float) -> None:
        self.model, self.strength = client.model, strength
        self.offset = client.tensor(target).mul_(-strength)

    def add(self) -> None:
        """Change the model's gradients in place; without strength leave their bits alone."""
        if self.strength:
            self.model.grads.add_(self.offset).add_(self.model.weights, alpha=self.strength)
