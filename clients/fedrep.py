"""FedRep's client (Collins et al., ICML 2021): trains the head on a fixed body, then the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from clients.base import Epochs, epoch_plan
from clients.fedper import FedPerClient
from clients.optim import make_optimizer

if TYPE_CHECKING:
    from strategies.fedrep import FedRepParams


class FedRepClient(FedPerClient):
    """Trains the head for epochs of its own, then the body for the usual epochs or steps."""

    params: FedRepParams

    def train(self, lr: float) -> dict[str, float]:
        """Train one part after the other; each is as if the other were constant."""
        start = int(self.shared()[: self.model.size].sum())
        draw, size = self.context.draw("head"), self.context.training.batch_size
        count = self.params.head_epochs
        epochs = [epoch_plan(self.rows, size, draw) for _ in range(count)]
        losses = self._train_part(slice(start, None), epochs, lr)
        losses += self._train_part(slice(0, start), self.schedule, lr)
        return {"steps": len(losses), "loss": torch.stack(losses).mean().item()}

    def _train_part(self, part: slice, epochs: Epochs, lr: float) -> list[torch.Tensor]:
        """Move some parameters alone; return the losses."""
        model, how = self.model, self.context.training
        model.module.train()
        optimizer = make_optimizer(
            how.optimizer, model.weights[part], model.grads[part], how.momentum, how.weight_decay
        )
        losses = []
        for epoch in epochs:
            for x, y in self.batches(epoch):
                losses.append(self.gradients(x, y))
                self.correct_gradient()
                optimizer.step(lr)
            self.end_epoch()
        return losses
