"""Freeloaders: clients that take part in any algorithm without training.

A freeloader sends back the last change of the global model it saw, zeros the first time, with an
honest-looking number of samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clients.base import Client
from fedsuite.vector import Vector


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
            last = self.site.state.load().get("freeloader.model")
            if last is not None:
                change = received["model"] - last
            self.site.state.save({"freeloader.model": received["model"]})
        zeros = np.zeros(self.model.size, dtype=np.float32)
        answer = [change if name == "update" else zeros for name in self.sends]
        return answer, len(self.site.train_rows), {"steps": 0, "loss": 0.0}
