"""Scores of a model on some rows, without gradients, from one pass over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fedsuite.core import seeds
from fedsuite.core.class_counts import ClassCounts, auc
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.threads import map_in_threads
from tasks.task import Task

BATCH = 256
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy, the counts per class, and of two classes the area under the ROC curve."""

    loss: float
    counts: ClassCounts
    auc: float | None = None

    @property
    def correct(self) -> int:
        """Samples classified correctly."""
        return int(self.counts.correct.sum())

    @property
    def total(self) -> int:
        """Samples in all."""
        return self.counts.total

    @property
    def accuracy(self) -> float:
        """Fraction of samples classified correctly."""
        return self.counts.accuracy

    def record(self) -> dict[str, Any]:
        """Return all scores by the names of their metrics."""
        found = {"accuracy": self.accuracy, "loss": self.loss, **self.counts.scores()}
        return found if self.auc is None else found | {"auc": self.auc}

    def to_send(self) -> dict[str, Any]:
        """Return what a client sends of its score, beside loss and samples."""
        found: dict[str, Any] = {"correct": self.correct, **self.counts.to_lists()}
        return found if self.auc is None else found | {"auc": self.auc}


@dataclass(frozen=True)
class ScoredBatch:
    """A batch's summed loss, its labels and predictions, and its scores of class 1 of two."""

    loss: float
    labels: np.ndarray
    predicted: np.ndarray
    ranking: np.ndarray

    @staticmethod
    def of(
        logits: torch.Tensor, y: torch.Tensor, ranked: torch.Tensor | None = None
    ) -> ScoredBatch:
        """Score logits; ``ranked``, if given, decides on classes in their place."""
        ranked = logits if ranked is None else ranked
        two = ranked[:, 1].double() - ranked[:, 0].double() if ranked.shape[1] == 2 else y[:0]
        return ScoredBatch(
            F.cross_entropy(logits, y, reduction="sum").item(),
            y.cpu().numpy(),
            ranked.argmax(1).cpu().numpy(),
            two.cpu().numpy(),
        )


def score_batches(batches: Iterable[ScoredBatch], num_classes: int) -> Score:
    """Return the score of some batches together."""
    found = list(batches)
    labels, predicted, ranking = (
        np.concatenate([getattr(batch, name) for batch in found])
        for name in ("labels", "predicted", "ranking")
    )
    loss = 0.0
    for batch in found:
        loss += batch.loss
    area = auc(labels, ranking) if num_classes == 2 else None
    return Score(loss / len(labels), ClassCounts.of(labels, predicted, num_classes), area)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode; then restore its mode."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def scored_rows(test: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the test rows that are scored: ``count`` of them, or all if that is 0."""
    if not count or count >= len(test):
        return test
    return np.sort(seeds.generator(seed, "evaluation").choice(test, count, replace=False))


def mean_probabilities(
    model: FlatModel, task: Task, indices: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the mean softmax over some rows, and the accuracy on them."""

    def measure(logits: torch.Tensor, y: torch.Tensor) -> tuple[np.ndarray, int]:
        logits = logits.double().cpu()
        return logits.softmax(1).sum(0).numpy(), int((logits.argmax(1) == y).sum())

    total, correct = np.zeros(task.shape.num_classes), 0
    for probabilities, right in _batches(model, task, indices, measure):
        total += probabilities
        correct += right
    return total / len(indices), correct / len(indices)


def evaluate(model: FlatModel, task: Task, indices: np.ndarray) -> Score:
    """Score the model as it stands on some rows of the task."""
    if not len(indices):
        raise ValueError("there are no rows to evaluate on")

    def measure(logits: torch.Tensor, y: torch.Tensor) -> ScoredBatch:
        return ScoredBatch.of(logits, y.to(model.device))

    return score_batches(_batches(model, task, indices, measure), task.shape.num_classes)


def _batches(
    model: FlatModel,
    task: Task,
    indices: np.ndarray,
    measure: Callable[[torch.Tensor, torch.Tensor], Measured],
) -> list[Measured]:
    """Return what is measured of the logits and labels of each batch of rows, in their order."""

    def measured(start: int) -> Measured:
        x, y = task.rows(indices[start : start + BATCH])
        with torch.inference_mode():
            return measure(model.module(x.to(model.device)), y)

    starts = range(0, len(indices), BATCH)
    with evaluation_mode(model.module):
        if model.device.type == "cpu":
            return map_in_threads(measured, starts)
        return [measured(start) for start in starts]
