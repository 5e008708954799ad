"""STEM's client (Khanduri et al., NeurIPS 2021): each step needs the batch's gradient twice.

``v_k = g(w_k) + (1 - a)(v_{k-1} - g(w_{k-1}))``, both gradients on the batch of step ``k``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from clients.base import Client
from fedsuite.core.vector import Vector, to_numpy


class StemClient(Client):
    """Sends the update and its last direction."""

    receives: ClassVar[tuple[str, ...]] = ("model", "direction")
    sends: ClassVar[tuple[str, ...]] = ("update", "direction")

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train on from the received direction; without one the first step is plain."""
        model, direction = (torch.tensor(p, device=self.model.device) for p in parameters)
        self.keep = 1.0 - config["a"]
        self.fresh = not bool(direction.any())
        self.direction = direction
        self.previous = model.add_(direction, alpha=config["last-step"])
        (update,), count, metrics = super().fit(parameters, config)
        return [update, to_numpy(self.direction)], count, metrics

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Fill the gradients with ``v_k`` and remember it, and where it was taken."""
        grads, weights = self.model.grads, self.model.weights
        if self.keep and not self.fresh:
            self.direction.sub_(self._previous_gradient(x, y)).mul_(self.keep)
            loss = super().gradients(x, y)
            grads.add_(self.direction)
        else:
            loss = super().gradients(x, y)
        self.fresh = False
        self.direction.copy_(grads)
        self.previous.copy_(weights)
        return loss

    def _previous_gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the gradient at the last point; leave weights, statistics and chance as found."""
        weights, buffers = self.model.weights.clone(), self.model.buffers.clone()
        gpus = [self.model.device] if self.model.device.type == "cuda" else []
        self.model.weights.copy_(self.previous)
        with torch.random.fork_rng(devices=gpus):
            super().gradients(x, y)
        self.model.weights.copy_(weights)
        self.model.buffers.copy_(buffers)
        return self.model.grads
