"""FedAMP's client (Huang et al., AAAI 2021): trains its own model, pulled to its cloud model.

The gradient of ``lam / (2 alpha) |w - u_i|^2`` is added to each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.base import Received, Reply
from clients.local import LocalClient
from clients.proximal import ProximalPull

if TYPE_CHECKING:
    from strategies.fedamp import FedAmpParams


class FedAmpClient(LocalClient):
    """``w_i <- w_i - lr (g + lam/alpha (w_i - u_i))``, from its own last model on."""

    receives: ClassVar[tuple[str, ...]] = ("cloud",)
    sends: ClassVar[tuple[str, ...]] = ("update",)
    params: FedAmpParams

    def train_round(self, received: Received) -> Reply:
        """Train the own model and send how far it is from the run's first one."""
        cloud = received["cloud"]
        strength = self.params.lam / self.params.alpha if cloud.size else 0.0
        self.pull = ProximalPull(self, cloud, strength)
        reply = super().train_round(received)
        reply.vectors["update"] = self.model.vector() - self.context.initial
        return reply

    def correct_gradient(self) -> None:
        """Add ``lam/alpha (w_i - u_i)``."""
        self.pull.add()
