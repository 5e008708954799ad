"""TACO's client (Liu et al.): one more vector added to each gradient, Eq. 8.

The update's norm is sent beside it; the server takes the one of Eq. 7 from the update itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.base import Client, Received, Reply
from fedsuite.core.vector import Vector, norms

if TYPE_CHECKING:
    from strategies.taco import TacoParams


class TacoClient(Client):
    """``w_i <- w_i - lr (g + gamma (1 - alpha_i) Delta)``."""

    receives: ClassVar[tuple[str, ...]] = ("model", "global_gradient")
    params: TacoParams

    def train_round(self, received: Received) -> Reply:
        """Train with the correction, which does not change within a round."""
        gamma = self.params.gamma or 1.0 / self.num_steps
        factor = gamma * (1.0 - received.number("alpha")) if self.params.correction else 0.0
        self.corrects = factor != 0.0
        self.pull = self.tensor(received["global_gradient"]).mul_(factor)
        return super().train_round(received)

    def describe(self, update: Vector, received: Received) -> dict[str, float]:
        """Send ``|Delta_i|``."""
        return {"norm": float(norms(update[None])[0])}

    def correct_gradient(self) -> None:
        """Add the tailored part of the global gradient."""
        if self.corrects:
            self.model.grads.add_(self.pull)
