"""FedALA's client (Zhang et al., AAAI 2023): starts from a learnt mixture of two models.

Over the top layers the start is ``Q_i + (Q - Q_i) * W`` with ``Q`` the global model, ``Q_i`` the
client's own last one and ``W`` in [0, 1], learnt by gradient steps on a part of the client's rows
while everything else is frozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from clients.base import Client, Evaluation, Received, Reply, epoch_plan
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.vector import Vector, top_layers

if TYPE_CHECKING:
    from strategies.fedala import FedAlaParams

LOSSES = 10


class FedAlaClient(Client):
    """Keeps its model and its mixing weights; sends the update."""

    personal: ClassVar[bool] = True
    params: FedAlaParams

    def train_round(self, received: Received) -> Reply:
        """Mix, train, and keep the model and the mixing weights."""
        weights, learnt = self._mix(received["model"], self.context.round)
        metrics = learnt | self.train(received.lr)
        update = self.model.vector() - received["model"]
        if self.params.adaptive and np.isfinite(update).all():
            own = {"model": self.model.vector(), "weights": weights}
            if learnt["ala-epochs"]:
                own["learnt"] = np.array([learnt["ala-epochs"]], np.float32)
            self.context.state.update(own)
        vectors = {"update": update, "ala_weights": weights}
        sent = {name: vectors[name] for name in self.outgoing()}
        return Reply(sent, metrics | self.describe(update, received))

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the mixture it would start the next round from, and the global model."""
        self.model.load(received["model"])
        _, _, alone = self.score()
        self._mix(received["model"], self.context.round + 1)
        loss, count, metrics = self.score()
        return loss, count, metrics | {"global-correct": alone["correct"]}

    def _mix(self, model: Vector, next_round: int) -> tuple[Vector, dict[str, float]]:
        """Load the start of a round; return the mixing weights and numbers about them."""
        self.model.load(model)
        state = self.context.state.load(after_round=next_round > self.context.round)
        top = top_start(self.model, self.params.ala_layers)
        if not self.params.adaptive or "model" not in state:
            return np.ones(self.model.size - top, np.float32), {"ala-epochs": 0}
        ala = LocalAggregation(self, top, state, next_round)
        epochs = ala.learn(first=not np.any(state.get("learnt", 0)))
        weights = ala.weights.cpu().numpy()
        seen = {"ala-mean": float(weights.mean()), "ala-min": float(weights.min())}
        return weights, seen | {"ala-std": float(weights.std()), "ala-epochs": epochs}


class LocalAggregation:
    """Adaptive local aggregation over the entries from ``top`` on."""

    def __init__(
        self,
        client: FedAlaClient,
        top: int,
        state: dict[str, np.ndarray],
        next_round: int,
    ) -> None:
        self.client, self.model, self.params = client, client.model, client.params
        self.part = slice(top, self.model.size)
        self.own = client.tensor(state["model"][top:])
        self.gap = self.model.weights[self.part].clone() - self.own
        self.weights = client.tensor(state["weights"])
        rows = client.context.train_rows
        self.draw = client.context.draw_for("ala", next_round)
        count = max(round(len(rows) * self.params.ala_percent / 100), 1)
        self.rows = self.draw.choice(rows, count, replace=False)

    def learn(self, first: bool) -> int:
        """Learn the weights: to convergence the first time, then one epoch; return the epochs."""
        if not bool(self.gap.any()):
            return 0
        buffers = self.model.buffers.clone()
        frozen = [p for name, p in self.model.module.named_parameters() if self._below(name)]
        for parameter in frozen:
            parameter.requires_grad_(False)
        losses: list[float] = []
        try:
            while not self._done(losses, first):
                losses.append(self._epoch())
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
        self.model.buffers.copy_(buffers)
        return len(losses)

    def _below(self, name: str) -> bool:
        return self.model.slices[name].start < self.part.start

    def _done(self, losses: list[float], first: bool) -> bool:
        if not first:
            return len(losses) == 1
        if len(losses) >= self.params.ala_max_epochs:
            return True
        settled = len(losses) >= LOSSES and np.std(losses[-LOSSES:]) < self.params.ala_tolerance
        return bool(settled)

    def _epoch(self) -> float:
        self.model.module.train()
        plan = epoch_plan(self.rows, self.client.context.training.batch_size, self.draw)
        total = 0.0
        for x, y in self.client.batches(plan):
            self._place()
            total += self.client.gradients(x, y).item()
            with torch.no_grad():
                step = self.model.grads[self.part] * self.gap
                self.weights.sub_(step, alpha=self.params.ala_lr).clamp_(0.0, 1.0)
        self._place()
        return total / len(plan)

    @torch.no_grad()
    def _place(self) -> None:
        self.model.weights[self.part] = self.own + self.gap * self.weights


def top_start(model: FlatModel, count: int) -> int:
    """Return where the top ``count`` layers start in the flat vector; 0 layers means all."""
    return next(iter(top_layers(model.shapes, count).values())).start
