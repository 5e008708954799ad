"""APPLE's client (Luo and Wu, IJCAI 2022): learns its core and how it relates to all cores.

With ``g`` the gradient at the personal model ``sum_j p_j c_j``, a step is
``c_i <- c_i - lr p_i g`` and ``p_j <- p_j - p-lr (<g, c_j> + penalty (p_j - p0_j))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import torch

from clients.base import Received, Reply
from clients.local import LocalClient
from fedsuite.core.flat_model import to_numpy

if TYPE_CHECKING:
    from strategies.apple import AppleParams

Array = TypeVar("Array", np.ndarray, torch.Tensor)


class AppleClient(LocalClient):
    """Sends its core; keeps its core, its relations and its personal model."""

    receives: ClassVar[tuple[str, ...]] = ("cores", "shares")
    sends: ClassVar[tuple[str, ...]] = ("update",)
    params: AppleParams

    def train_round(self, received: Received) -> Reply:
        """Learn core and relations; keep both and the personal model."""
        me, own, shares = self.context.client, self.context.state.load(), received["shares"]
        self.cores, self.shares = self.tensor(received["cores"]), self.tensor(shares)
        if "core" in own:
            self.cores[me] = self.tensor(own["core"])
        first = shares if self.params.start == "shares" else one_hot(me, len(self.cores))
        kept = own.get("p", first)
        self.p = self.tensor(np.append(kept, first[len(kept) :]))
        self.penalty = received.number("penalty")
        self.model.load(self.context.initial, own.get("buffers", self.context.initial_buffers))
        metrics = self.train(received.lr)
        core, p = to_numpy(self.cores[me]), to_numpy(self.p)
        self._keep_own(core=core, p=p)
        metrics |= {"p-own": float(p[me]), "p-sum": float(p.sum())}
        return Reply({"update": core - self.context.initial}, metrics)

    def train(self, lr: float) -> dict[str, float]:
        """Take the steps; the model is the mixture throughout."""
        model = self.model
        model.module.train()
        optimizer = self.optimizer(self.cores[self.context.client])
        losses: list[torch.Tensor] = []
        model.weights.copy_(mixture(self.p, self.cores))
        for epoch in self.schedule:
            for x, y in self.batches(epoch):
                losses.append(self.gradients(x, y))
                slope = relation_gradient(
                    self.p, self.cores, model.grads, self.shares, self.penalty
                )
                model.grads.mul_(self.p[self.context.client])
                optimizer.step(lr)
                self.p.sub_(slope, alpha=self.params.p_lr)
                model.weights.copy_(mixture(self.p, self.cores))
        return {"steps": len(losses), "loss": torch.stack(losses).mean().item()}


def mixture(p: Array, cores: Array) -> Array:
    """Return the personal model ``sum_j p_j c_j``."""
    return p @ cores


def relation_gradient(p: Array, cores: Array, grad: Array, shares: Array, penalty: float) -> Array:
    """Return ``<g, c_j> + penalty (p_j - p0_j)`` for every ``j``."""
    return cores @ grad + (p - shares) * penalty


def one_hot(index: int, count: int) -> np.ndarray:
    """Return relations that use the client's own core alone."""
    return np.eye(count, dtype=np.float32)[index]
