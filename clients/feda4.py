"""FedA4's client (Algorithm 1): ordinary local training that records its trajectory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clients.base import Client, Received, Reply

if TYPE_CHECKING:
    from strategies.feda4 import FedA4Params


class FedA4Client(Client):
    """Sends the update and, if full, the change over each local epoch (Eq. 1)."""

    sends: ClassVar[tuple[str, ...]] = ("update", "trajectory")
    params: FedA4Params

    def train_round(self, received: Received) -> Reply:
        """Train and record the trajectory."""
        self.path = [received["model"]] if self.params.trajectory == "full" else []
        reply = super().train_round(received)
        if self.path:
            changes = [after - before for before, after in pairwise(self.path)]
            reply.vectors["trajectory"] = np.concatenate(changes)
        return reply

    def outgoing(self) -> tuple[str, ...]:
        """Send no trajectory in its compact form."""
        return self.sends if self.params.trajectory == "full" else ("update",)

    def end_epoch(self) -> None:
        """Record where this epoch ended."""
        if self.path:
            self.path.append(self.model.vector())

    def length(self, name: str) -> int:
        """A trajectory has one vector per epoch."""
        return self.model.size * (len(self.schedule) if name == "trajectory" else 1)
