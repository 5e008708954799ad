"""Freeloaders: clients that take part in any algorithm without training.

A freeloader sends back the last change of the global model it saw, zeros the first time, with an
honest-looking number of samples and steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clients.base import Client
from fedsuite.core.vector import Vector


def freeloading(cls: type[Client]) -> type[Client]:
    """Return the algorithm's client with its training replaced by pretence."""
    return type(f"Freeloading{cls.__name__}", (Freeloader, cls), {})


class Freeloader(Client):
    """Mixed in before an algorithm's client: :meth:`fit` sends what the server already has."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Answer with the last global change, and zeros for any other vector."""
        received = dict(zip(self.receives, parameters, strict=True))
        change = np.zeros(self.model.size, dtype=np.float32)
        if "model" in received:
            last = self.context.state.load().get("freeloader.model")
            if last is not None:
                change = received["model"] - last
            self.context.state.update({"freeloader.model": received["model"]})
        answer = [
            change if name == "update" else np.zeros(self.length(name), dtype=np.float32)
            for name in self.outgoing(config)
        ]
        metrics = {"steps": self.num_steps, "loss": 0.0}
        metrics |= self.describe(change, parameters, config)
        return answer, len(self.context.train_rows), metrics
