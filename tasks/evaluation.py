"""Accuracy and loss of a model on some rows, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fedsuite.core import seeds
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.threads import map_in_threads
from tasks.task import Task

BATCH = 256
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy, and how many of how many samples were classified correctly."""

    loss: float
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Fraction of samples classified correctly."""
        return self.correct / self.total


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

    def measure(logits: torch.Tensor, y: torch.Tensor) -> tuple[float, int]:
        y = y.to(model.device)
        loss = F.cross_entropy(logits, y, reduction="sum").item()
        return loss, int((logits.argmax(1) == y).sum())

    loss, correct = 0.0, 0
    for summed, right in _batches(model, task, indices, measure):
        loss += summed
        correct += right
    return Score(loss / len(indices), correct, len(indices))


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
