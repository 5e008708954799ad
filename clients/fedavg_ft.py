"""The client of FedAvg with fine-tuning: tunes the global model before it is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.base import Client, Evaluation, Received, epoch_plan

if TYPE_CHECKING:
    from strategies.fedavg_ft import FedAvgFtParams


class FedAvgFtClient(Client):
    """Trains as FedAvg's; nothing of the fine-tuning is kept or sent."""

    personal: ClassVar[bool] = True
    params: FedAvgFtParams

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the received model after some epochs on the own training samples."""
        self.model.load(received["model"])
        if self.params.epochs:
            draw, size = self.context.draw("fine-tuning"), self.context.training.batch_size
            epochs = [epoch_plan(self.rows, size, draw) for _ in range(self.params.epochs)]
            self.train_on(epochs, received.number("tuning-lr"))
        return self.score()
