"""FedADW's client: starts from a learnt mixture of its own last model and the global one.

Over the top layers the start is ``Q_i + (Q - Q_i) * W`` (Eq. 10) with ``W`` in [0, 1], learnt by
gradient steps on a part of the client's rows while everything else is frozen.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from clients.base import Client, epoch_plan
from fedsuite.core.vector import FlatModel, Vector

LOSSES = 10


class FedAdwClient(Client):
    """Keeps its model and its mixing weights; sends the update and its discrepancy."""

    personal: ClassVar[bool] = True

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Mix, train, remember."""
        model = parameters[0]
        weights, learnt = self._mix(model, config, self.context.round)
        metrics = learnt | self.train(config["lr"])
        update = self.model.vector() - model
        if config["adaptive"] and np.isfinite(update).all():
            times = np.array([learnt["ala-epochs"]], np.float32)
            self.context.state.update(
                {"model": self.model.vector(), "weights": weights, "learnt": times}
            )
        metrics |= self.describe(update, parameters, config)
        return [update], len(self.context.train_rows), metrics

    def describe(
        self, update: Vector, parameters: list[Vector], config: dict[str, Any]
    ) -> dict[str, float]:
        """Say how far the own classes are from uniform."""
        labels = self.context.task.labels(self.context.train_rows)
        counts = np.bincount(labels, minlength=self.context.task.shape.num_classes)
        return {"discrepancy": discrepancy(counts)}

    def evaluate(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        """Score the mixture it would start the next round from, and the global model."""
        self.model.load(parameters[0])
        _, _, alone = self.score()
        self._mix(parameters[0], config, self.context.round + 1)
        loss, count, metrics = self.score()
        return loss, count, metrics | {"global-correct": alone["correct"]}

    def _mix(
        self, model: Vector, config: dict[str, Any], next_round: int
    ) -> tuple[Vector, dict[str, float]]:
        """Load the start of a round; return the mixing weights and what was seen of them."""
        self.model.load(model)
        state = self.context.state.load(after_round=next_round > self.context.round)
        top = top_layers(self.model, int(config["ala-layers"]))
        if not config["adaptive"] or "model" not in state:
            return np.ones(self.model.size - top, np.float32), {"ala-epochs": 0}
        ala = LocalAggregation(self, top, state, config, next_round)
        epochs = ala.learn(first=bool(state["learnt"][0] == 0))
        weights = ala.weights.cpu().numpy()
        seen = {"ala-mean": float(weights.mean()), "ala-min": float(weights.min())}
        return weights, seen | {"ala-std": float(weights.std()), "ala-epochs": epochs}


class LocalAggregation:
    """Adaptive local aggregation over the entries from ``top`` on."""

    def __init__(
        self,
        client: FedAdwClient,
        top: int,
        state: dict[str, np.ndarray],
        config: dict[str, Any],
        next_round: int,
    ) -> None:
        self.client, self.model, self.config = client, client.model, config
        device = self.model.device
        self.part = slice(top, self.model.size)
        self.own = torch.tensor(state["model"][top:], device=device)
        self.gap = self.model.weights[self.part].clone() - self.own
        self.weights = torch.tensor(state["weights"], device=device)
        rows = client.context.train_rows
        self.draw = client.context.draw_for("ala", next_round)
        count = max(round(len(rows) * config["ala-percent"] / 100), 1)
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
        if len(losses) >= self.config["ala-max-epochs"]:
            return True
        return len(losses) >= LOSSES and np.std(losses[-LOSSES:]) < self.config["ala-tolerance"]

    def _epoch(self) -> float:
        self.model.module.train()
        plan = epoch_plan(self.rows, self.client.context.training.batch_size, self.draw)
        total = 0.0
        for x, y in self.client.batches(plan):
            self._place()
            total += self.client.gradients(x, y).item()
            with torch.no_grad():
                step = self.model.grads[self.part] * self.gap
                self.weights.sub_(step, alpha=self.config["ala-lr"]).clamp_(0.0, 1.0)
        self._place()
        return total / len(plan)

    @torch.no_grad()
    def _place(self) -> None:
        self.model.weights[self.part] = self.own + self.gap * self.weights


def discrepancy(label_counts: np.ndarray) -> float:
    """Eq. 11 the right way up: ``KL(C || uniform)`` in nats, ``0 log 0 = 0``."""
    counts = np.asarray(label_counts, dtype=np.float64)
    shares = counts / counts.sum()
    logs = np.log(shares * len(shares), out=np.zeros_like(shares), where=shares > 0)
    return max(float(shares @ logs), 0.0)


def top_layers(model: FlatModel, count: int) -> int:
    """Return where the top ``count`` layers start in the flat vector; 0 layers means all."""
    starts: dict[str, int] = {}
    for name, part in model.slices.items():
        starts.setdefault(name.rpartition(".")[0], part.start)
    return 0 if count == 0 else list(starts.values())[-min(count, len(starts))]
