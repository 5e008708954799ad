"""FedA4's client (Algorithm 1): ordinary local training that remembers its way."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from clients.base import Client
from fedsuite.core.vector import Vector


class FedA4Client(Client):
    """Sends the update and, if full, the change over each local epoch (Eq. 1)."""

    sends: ClassVar[tuple[str, ...]] = ("update", "trajectory")

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train and record the trajectory."""
        self.path = [parameters[0]] if config["trajectory"] == "full" else []
        (update,), count, metrics = super().fit(parameters, config)
        if not self.path:
            return [update], count, metrics
        changes = [after - before for before, after in zip(self.path, self.path[1:], strict=False)]
        return [update, np.concatenate(changes)], count, metrics

    def outgoing(self, config: dict[str, Any]) -> tuple[str, ...]:
        """Send no trajectory in its compact form."""
        return self.sends if config["trajectory"] == "full" else ("update",)

    def end_epoch(self) -> None:
        """Remember where this epoch ended."""
        if self.path:
            self.path.append(self.model.vector())

    def length(self, name: str) -> int:
        """A trajectory has one vector per epoch."""
        return self.model.size * (len(self.schedule) if name == "trajectory" else 1)
