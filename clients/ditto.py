"""Ditto's client (Li et al., ICML 2021): FedAvg's training, and a model of its own beside it.

``v <- v - lr (g(v) + lam (v - w))`` with ``w`` as received, over batches of its own; ``v`` starts
at the first model received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clients.base import Client, Evaluation, Received, Reply
from clients.proximal import ProximalPull

if TYPE_CHECKING:
    from strategies.ditto import DittoParams


class DittoClient(Client):
    """Sends the update of the global model; keeps its own with its batch-norm statistics."""

    personal: ClassVar[bool] = True
    scores_own: ClassVar[bool] = True
    params: DittoParams
    pull: ProximalPull | None = None

    def train_round(self, received: Received) -> Reply:
        """Train the global model, as FedAvg's client does, and then the own one."""
        buffers = self.model.buffer_vector()
        reply = super().train_round(received)
        sent = self.model.buffer_vector()
        own = self.context.state.load()
        self.model.load(own.get("model", received["model"]), own.get("buffers", buffers))
        self.pull = ProximalPull(self, received["model"], self.params.lam)
        self.train_on(self.plan("own batches"), received.lr)
        kept = {"model": self.model.vector(), "buffers": self.model.buffer_vector()}
        if np.isfinite(kept["model"]).all():
            self.context.state.save(kept)
        self.model.load(received["model"], sent)  # the statistics that travel are the global ones
        return reply

    def correct_gradient(self) -> None:
        """Add ``lam (v - w)`` for the own model."""
        if self.pull is not None:
            self.pull.add()

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the own model, or the received one before the first round of this client."""
        own = self.context.state.load(after_round=True)
        self.model.load(own.get("model", received["model"]), own.get("buffers"))
        return self.score()
