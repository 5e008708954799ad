"""STEM's client (Khanduri et al., NeurIPS 2021): each step needs the batch's gradient twice.

``v_k = g(w_k) + (1 - a)(v_{k-1} - g(w_{k-1}))``, both gradients on the batch of step ``k``.
By default the last step is left to the server, which averages directions as well as models. With
``a = 1`` nothing is kept, no direction is needed, and a client takes all its steps itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from clients.base import Client, Received, Reply
from fedsuite.core.flat_model import to_numpy

if TYPE_CHECKING:
    from strategies.stem import StemParams


class StemClient(Client):
    """Sends the update, without its last step if the server takes it, and its last direction."""

    receives: ClassVar[tuple[str, ...]] = ("model", "direction")
    sends: ClassVar[tuple[str, ...]] = ("update", "direction")
    params: StemParams

    def train_round(self, received: Received) -> Reply:
        """Continue from the received direction; without one the first step is plain SGD."""
        self.direction = self.tensor(received["direction"])
        self.fresh = not bool(self.direction.any())
        step_back = received.number("last-step")
        self.previous = self.tensor(received["model"]).add_(self.direction, alpha=step_back)
        reply = super().train_round(received)
        reply.vectors["direction"] = to_numpy(self.direction)
        if self.params.form == "paper" and self.params.a < 1:
            reply.vectors["update"] = to_numpy(self.previous) - received["model"]
        return reply

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Fill the gradients with ``v_k`` and remember it, and where it was taken."""
        grads, weights, keep = self.model.grads, self.model.weights, 1.0 - self.params.a
        if keep and not self.fresh:
            self.direction.sub_(self._previous_gradient(x, y)).mul_(keep)
            loss = super().gradients(x, y)
            grads.add_(self.direction)
        else:
            loss = super().gradients(x, y)
        self.fresh = False
        self.direction.copy_(grads)
        self.previous.copy_(weights)
        return loss

    def _previous_gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the gradient at the last point; restore weights, statistics and random state."""
        weights, buffers = self.model.weights.clone(), self.model.buffers.clone()
        gpus = [self.model.device] if self.model.device.type == "cuda" else []
        self.model.weights.copy_(self.previous)
        with torch.random.fork_rng(devices=gpus):
            super().gradients(x, y)
        self.model.weights.copy_(weights)
        self.model.buffers.copy_(buffers)
        return self.model.grads
