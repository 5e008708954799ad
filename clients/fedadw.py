"""FedADW's client: FedALA's (Eq. 10), which also says how far its classes are from uniform."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clients.base import Received
from clients.fedala import FedAlaClient, top_start
from fedsuite.core.vector import Vector

if TYPE_CHECKING:
    from strategies.fedadw import FedAdwParams


class FedAdwClient(FedAlaClient):
    """Keeps its model and its mixing weights; sends the update and its discrepancy."""

    sends: ClassVar[tuple[str, ...]] = ("update", "ala_weights")
    params: FedAdwParams

    def outgoing(self) -> tuple[str, ...]:
        """Send the mixing weights only on request."""
        return self.sends if self.params.send_weights else ("update",)

    def length(self, name: str) -> int:
        """There is one mixing weight per parameter of the top layers."""
        top = top_start(self.model, self.params.ala_layers)
        return self.model.size - (top if name == "ala_weights" else 0)

    def describe(self, update: Vector, received: Received) -> dict[str, float]:
        """Send how far the own classes are from uniform."""
        labels = self.context.task.labels(self.context.train_rows)
        counts = np.bincount(labels, minlength=self.context.task.shape.num_classes)
        return {"discrepancy": discrepancy(counts)}


def discrepancy(label_counts: np.ndarray) -> float:
    """Eq. 11 without its sign: ``KL(C || uniform)`` in nats, ``0 log 0 = 0``."""
    counts = np.asarray(label_counts, dtype=np.float64)
    shares = counts / counts.sum()
    logs = np.log(shares * len(shares), out=np.zeros_like(shares), where=shares > 0)
    return max(float(shares @ logs), 0.0)
