"""Optimisers on a flat vector: a step is a handful of in-place vector operations.

Neither the flat weights nor the flat gradients require gradients themselves, so no step needs
``torch.no_grad``, which costs as much as the operations do for a small model.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch


class Optimizer(Protocol):
    """Something that moves weights along their gradients."""

    def step(self, lr: float) -> None:
        """Move once."""


class SGD:
    """Stochastic gradient descent with heavy-ball momentum and L2 weight decay."""

    def __init__(
        self,
        weights: torch.Tensor,
        grads: torch.Tensor,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self.weights, self.grads = weights, grads
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity: torch.Tensor | None = None

    def step(self, lr: float) -> None:
        """Move weights by ``-lr`` times the (decayed, accumulated) gradient."""
        direction = self.grads
        if self.weight_decay:
            direction.add_(self.weights, alpha=self.weight_decay)
        if self.momentum:
            if self.velocity is None:
                self.velocity = direction.clone()
            else:
                self.velocity.mul_(self.momentum).add_(direction)
            direction = self.velocity
        self.weights.add_(direction, alpha=-lr)


class Adam:
    """Adam (Kingma and Ba, 2015) with L2 weight decay, betas 0.9 and 0.999."""

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(
        self, weights: torch.Tensor, grads: torch.Tensor, weight_decay: float = 0.0
    ) -> None:
        self.weights, self.grads, self.weight_decay = weights, grads, weight_decay
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.steps = 0

    def step(self, lr: float) -> None:
        """Move weights by the bias-corrected ratio of the gradient's moments."""
        self.steps += 1
        if self.weight_decay:
            self.grads.add_(self.weights, alpha=self.weight_decay)
        self.mean.lerp_(self.grads, 1 - self.BETA1)
        self.square.mul_(self.BETA2).addcmul_(self.grads, self.grads, value=1 - self.BETA2)
        spread = self.square.sqrt().div_(math.sqrt(1 - self.BETA2**self.steps))
        rate = lr / (1 - self.BETA1**self.steps)
        self.weights.addcdiv_(self.mean, spread.add_(self.EPSILON), value=-rate)


def make_optimizer(
    name: str, weights: torch.Tensor, grads: torch.Tensor, momentum: float, weight_decay: float
) -> Optimizer:
    """Return a fresh optimiser; its memory lasts one round."""
    if name == "adam":
        return Adam(weights, grads, weight_decay)
    return SGD(weights, grads, momentum, weight_decay)
