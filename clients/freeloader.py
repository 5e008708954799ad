"""Freeloaders: clients that take part in any algorithm without training.

A freeloader sends back the last change of the global model it saw, zeros the first time, with an
honest-looking number of samples and steps. It may add noise to hide that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from clients.base import Client, Received, Reply
from fedsuite.core.vector import Doubles, Vector, norms


def freeloading(cls: type[Client], noise: float = 0.0) -> type[Client]:
    """Return the algorithm's client with its training replaced by a replay of the global model.

    ``noise`` is the norm of the noise it adds, relative to what it replays.
    """
    return type(f"Freeloading{cls.__name__}", (Freeloader, cls), {"noise": noise})


def with_noise(change: Vector, noise: float, draw: np.random.Generator) -> Vector:
    """Add a Gaussian direction of ``noise`` times the length of ``change``."""
    return (change + noise_beside(change, noise, draw)).astype(np.float32) if noise else change


def noise_beside(change: Vector, noise: float, draw: np.random.Generator) -> Doubles:
    """Return a Gaussian direction of ``noise`` times the length of ``change``."""
    direction = draw.standard_normal(change.size)
    return noise * norms(change[None])[0] / norms(direction[None])[0] * direction


class Freeloader(Client):
    """Mixed in before an algorithm's client: sends what the server already has."""

    noise: ClassVar[float] = 0.0

    def train_round(self, received: Received) -> Reply:
        """Answer with the last global change, and zeros for any other vector."""
        vectors = {name: np.zeros(self.length(name), np.float32) for name in self.outgoing()}
        change = np.zeros(self.model.size, dtype=np.float32)
        if "model" in received:
            last = self.context.state.load().get("freeloader.model", received["model"])
            change = received["model"] - last
            change = with_noise(change, self.noise, self.context.draw("freeloader"))
            self.context.state.update({"freeloader.model": received["model"]})
        if "update" in vectors:
            vectors["update"] = change
        metrics = {"steps": self.num_steps, "loss": 0.0}
        return Reply(vectors, metrics | self.describe(change, received))

    @property
    def num_examples(self) -> int:
        """Claim all training rows."""
        return len(self.context.train_rows)
