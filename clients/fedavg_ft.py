"""The client of FedAvg with fine-tuning: tunes the global model before it is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.base import Client, Evaluation, Received, epoch_plan
from fedsuite.core import seeds

if TYPE_CHECKING:
    from strategies.fedavg_ft import FedAvgFtParams


class FedAvgFtClient(Client):
    """Trains as FedAvg's; nothing of the fine-tuning is kept or sent."""

    personal: ClassVar[bool] = True
    params: FedAvgFtParams

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the received model after some epochs on the own training samples."""
        here, draw = self.context, self.context.draw("fine-tuning")
        self.model.load(received["model"])
        self.model.seed(seeds.integer(here.seed, "fine-tuning", here.round, here.client))
        size, count = here.training.batch_size, self.params.epochs
        self.train_on([epoch_plan(self.rows, size, draw) for _ in range(count)], received.lr)
        return self.score()
