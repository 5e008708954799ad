"""pFedMe's client (Dinh et al., NeurIPS 2020): two models, ``theta`` to use and ``w_i`` to share.

Per batch, ``inner-steps`` steps of ``theta <- theta - personal-lr (g(theta) + lam (theta - w_i))``,
then one of ``w_i <- w_i - lr lam (w_i - theta)``. ``theta`` starts a round at the received model
and continues from batch to batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import torch

from clients.base import Client, Evaluation, Received, Reply
from fedsuite.core.flat_model import to_numpy

if TYPE_CHECKING:
    from strategies.pfedme import PFedMeParams

Array = TypeVar("Array", np.ndarray, torch.Tensor)


class PFedMeClient(Client):
    """Sends the change of ``w_i``; keeps ``theta`` with its batch-norm statistics."""

    personal: ClassVar[bool] = True
    scores_own: ClassVar[bool] = True
    params: PFedMeParams

    def train_round(self, received: Received) -> Reply:
        """Train both; without inner steps they are one."""
        self.model.load(received["model"])
        self.anchor = self.model.weights.clone()
        metrics = self.train(received.lr)
        theta, anchor = self.model.vector(), to_numpy(self.anchor)
        own = theta if self.params.scored == "theta" else anchor
        if np.isfinite(own).all():
            self.context.state.save({"theta": own, "buffers": self.model.buffer_vector()})
        return Reply({"update": anchor - received["model"]}, metrics)

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score what was kept, or the received model before the first round of this client."""
        own = self.context.state.load(after_round=True)
        self.model.load(own.get("theta", received["model"]), own.get("buffers"))
        return self.score()

    def train(self, lr: float) -> dict[str, float]:
        """Solve the inner problem batch by batch, moving the anchor after each."""
        lam, inner_steps = self.params.lam, self.params.inner_steps
        if inner_steps == 0:
            metrics = super().train(lr)
            self.anchor.copy_(self.model.weights)
            return metrics
        model = self.model
        model.module.train()
        optimizer = self.optimizer(model.weights)
        losses: list[torch.Tensor] = []
        for epoch in self.schedule:
            for x, y in self.batches(epoch):
                for _ in range(inner_steps):
                    losses.append(self.gradients(x, y))
                    model.grads.add_(pull(model.weights, self.anchor, lam))
                    optimizer.step(self.params.personal_lr)
                self.anchor.copy_(envelope_step(self.anchor, model.weights, lr * lam))
        return {"steps": self.num_steps, "loss": torch.stack(losses).mean().item()}


def pull(theta: Array, anchor: Array, lam: float) -> Array:
    """Return ``lam (theta - w_i)``, the gradient of ``lam/2 |theta - w_i|^2``."""
    return (theta - anchor) * lam


def envelope_step(anchor: Array, theta: Array, rate: float) -> Array:
    """Return ``w_i - rate (w_i - theta)``."""
    return anchor - (anchor - theta) * rate
