"""FedDUAL's client (Sahoo et al., 2024): ``(1 - s) CE + s KL(p || q)``.

``p`` and ``q`` are the class probabilities that the local and the received model give a row, and
``s = sigmoid(acc_local - acc_global)`` compares both on the client's training rows, again for each
epoch: the better a client knows its own rows, the more it is held to what it was sent.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from clients.base import Client, Received, Reply
from tasks.evaluation import evaluate

if TYPE_CHECKING:
    from strategies.feddual import FedDualParams


class FedDualClient(Client):
    """Trains with the received model beside it."""

    params: FedDualParams

    def train_round(self, received: Received) -> Reply:
        """Train; report the mean divergence and the last mixing weight."""
        if not self.params.adaptive_loss:
            return super().train_round(received)
        self.model.load(received["model"])
        self.teacher = copy.deepcopy(self.model.module).eval()
        self.epochs_left = len(self.schedule)
        self.start_accuracy = self._accuracy() if self.epochs_left > 1 else 0.0
        self.share = mixing(0.0, 0.0)
        self.divergences: list[torch.Tensor] = []
        reply = super().train_round(received)
        mean = torch.stack(self.divergences).mean().item()
        reply.metrics |= {"divergence": mean, "share": self.share}
        return reply

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mix the cross-entropy with the divergence from the received model."""
        if not self.params.adaptive_loss:
            return super().loss(x, y)
        logits = self.model.module(x)
        with torch.no_grad():
            sent = self.teacher(x)
        away = divergence(logits, sent)
        self.divergences.append(away.detach())
        return (1.0 - self.share) * F.cross_entropy(logits, y) + self.share * away

    @property
    def stackable(self) -> bool:
        """Without the divergence the loss is the usual one."""
        return not self.params.adaptive_loss

    def end_epoch(self) -> None:
        """Renew the mixing weight by the accuracy after this epoch."""
        if not self.params.adaptive_loss:
            return
        self.epochs_left -= 1
        if self.epochs_left:
            self.share = mixing(self._accuracy(), self.start_accuracy)

    def _accuracy(self) -> float:
        return evaluate(self.model, self.context.task, self.context.train_rows).accuracy


def mixing(local_accuracy: float, global_accuracy: float) -> float:
    """Return ``s = sigmoid(acc_local - acc_global)``."""
    return float(1.0 / (1.0 + np.exp(global_accuracy - local_accuracy)))


def divergence(local: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    """Return the mean over rows of ``KL(softmax(local) || softmax(sent))``, from logits."""
    log_p, log_q = F.log_softmax(local, dim=1), F.log_softmax(sent, dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
