"""Local's client: trains its own model, which never leaves its disk."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from clients.base import Client, Evaluation, Received, Reply
from fedsuite.core.vector import Vector


class LocalClient(Client):
    """Continues from its own last model; the first one is the same for all clients."""

    receives: ClassVar[tuple[str, ...]] = ()
    scores_with: ClassVar[tuple[str, ...]] = ()
    sends: ClassVar[tuple[str, ...]] = ()
    personal: ClassVar[bool] = True
    scores_own: ClassVar[bool] = True

    def train_round(self, received: Received) -> Reply:
        """Train the own model and keep it."""
        self._load_own()
        metrics = self.train(received.lr)
        self._keep_own()
        return Reply({}, metrics)

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the own model on the own test rows."""
        self._load_own(after_round=True)
        return self.score()

    def _keep_own(self, **more: Vector) -> None:
        """Write the own model, unless training has diverged."""
        own = {"model": self.model.vector(), "buffers": self.model.buffer_vector()}
        if np.isfinite(own["model"]).all():
            self.context.state.save(own | more)

    def _load_own(self, after_round: bool = False) -> None:
        own = self.context.state.load(after_round=after_round)
        self.model.load(
            own.get("model", self.context.initial), own.get("buffers", self.context.initial_buffers)
        )
