"""FedFomo's client (Zhang et al., ICLR 2021): starts from a mixture of models that help it.

With ``s`` the model its last round began with, each candidate ``j`` (its own model after that round
and those received) gains ``(L(s) - L(w_j)) / |w_j - s|`` on training rows held out for that.
Positive gains, scaled to sum 1, are the weights of the mixture; without any the client continues
from its own model.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from clients.base import Received, Reply
from clients.local import LocalClient
from fedsuite.core.vector import Matrix, Vector, norms, weighted_sum

if TYPE_CHECKING:
    from strategies.fedfomo import FedFomoParams

BATCH = 256
LARGEST = 1e18


class FedFomoClient(LocalClient):
    """Sends its model, its batch-norm statistics and what it gained from each other client."""

    receives: ClassVar[tuple[str, ...]] = ("peers", "peer_statistics")
    sends: ClassVar[tuple[str, ...]] = ("update", "statistics", "gains")
    params: FedFomoParams

    def train_round(self, received: Received) -> Reply:
        """Mix, train, and keep the model and its start."""
        gains = np.zeros(self.length("gains"), dtype=np.float32)
        gained, own_weight = self._mix(received["peers"], received["peer_statistics"])
        gains[received.integers("peer-ids")] = gained
        start, start_buffers = self.model.vector(), self.model.buffer_vector()
        metrics = self.train(received.lr) | {"own-weight": own_weight}
        self._keep_own(start=start, start_buffers=start_buffers)
        update = self.model.vector() - self.context.initial
        statistics = self.model.buffer_vector() - self.context.initial_buffers
        return Reply({"update": update, "statistics": statistics, "gains": gains}, metrics)

    def length(self, name: str) -> int:
        """Return the length of a vector this client sends."""
        sizes = {
            "statistics": self.model.buffers.numel(),
            "gains": len(self.context.task.split.train),
        }
        return sizes.get(name, self.model.size)

    @property
    def rows(self) -> np.ndarray:
        """Training rows that are not held out."""
        return self._parts[0]

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        draw = self.context.draw_for("validation", 0)
        return hold_out_validation(self.context.train_rows, self.params.validation, draw)

    def _mix(self, peers: Matrix, statistics: Matrix) -> tuple[np.ndarray, float]:
        """Load the mixture; return what others' models gained and the own model's weight."""
        own = self.context.state.load()
        start = own.get("start", self.context.initial)
        start_buffers = own.get("start_buffers", self.context.initial_buffers)
        mine = int("model" in own)
        if mine:
            peers = np.concatenate([own["model"][None], peers])
            statistics = np.concatenate([own["buffers"][None], statistics])
        losses = [self._held_out_loss(*pair) for pair in zip(peers, statistics, strict=True)]
        gained = first_order_gains(
            self._held_out_loss(start, start_buffers), np.array(losses), norms(peers - start)
        )
        weights = shares(gained)
        if not weights.any():
            self._load_own()
            return gained[mine:], 1.0
        self.model.load(weighted_sum(weights, peers), weighted_sum(weights, statistics))
        return gained[mine:], float(weights[:mine].sum())

    @torch.no_grad()
    def _held_out_loss(self, weights: Vector, buffers: Vector) -> float:
        """Return a model's mean loss on the rows held out."""
        self.model.load(weights, buffers)
        self.model.module.eval()
        rows = self._parts[1]
        plan = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
        total = sum(self.loss(x, y).item() * len(y) for x, y in self.batches(plan))
        return total / len(rows)


def hold_out_validation(
    rows: np.ndarray, share: float, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to train on, at least two, and to validate on; with too few, all rows twice."""
    count = min(max(round(share * len(rows)), 1), len(rows) - 2) if share > 0 else 0
    if count <= 0:
        return rows, rows
    held = np.zeros(len(rows), dtype=bool)
    held[draw.permutation(len(rows))[:count]] = True
    return rows[~held], rows[held]


def first_order_gains(loss: float, losses: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return ``(L(s) - L(w_j)) / |w_j - s|``; 0 at no distance, always finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        fall = loss - np.nan_to_num(losses, nan=np.inf, posinf=np.inf)
        gains = np.divide(fall, distances, out=np.zeros(len(losses)), where=distances > 0)
    return np.clip(np.nan_to_num(gains), -LARGEST, LARGEST)


def shares(gains: np.ndarray) -> np.ndarray:
    """Return positive gains scaled to sum 1; all zero where there are none."""
    positive = np.maximum(gains, 0.0)
    return positive / positive.sum() if positive.sum() > 0 else positive
