"""FedALA's client (Zhang et al., AAAI 2023): starts from a learnt mixture, as FedADW's does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.base import Received, Reply
from clients.fedadw import FedAdwClient
from fedsuite.core.vector import Vector

if TYPE_CHECKING:
    from strategies.fedala import FedAlaParams


class FedAlaClient(FedAdwClient):
    """Keeps its model and its mixing weights; sends the update alone."""

    sends: ClassVar[tuple[str, ...]] = ("update",)
    params: FedAlaParams  # type: ignore[assignment]

    def outgoing(self) -> tuple[str, ...]:
        """Send no mixing weights."""
        return self.sends

    def train_round(self, received: Received) -> Reply:
        """Mix, train, and keep the model and the mixing weights."""
        reply = super().train_round(received)
        return Reply({"update": reply.vectors["update"]}, reply.metrics)

    def describe(self, update: Vector, received: Received) -> dict[str, float]:
        """Send nothing of its classes."""
        return {}
