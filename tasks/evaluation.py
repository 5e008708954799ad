"""Accuracy and loss of a model on some rows, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fedsuite.core import seeds
from fedsuite.core.flat_model import FlatModel
from tasks.task import Task

BATCH = 256


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
def inference(module: nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode without gradients; then restore its mode."""
    was_training = module.training
    module.eval()
    try:
        with torch.inference_mode():
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
    total, correct = np.zeros(task.shape.num_classes), 0
    with inference(model.module):
        for start in range(0, len(indices), BATCH):
            x, y = task.rows(indices[start : start + BATCH])
            logits = model.module(x.to(model.device)).double().cpu()
            total += logits.softmax(1).sum(0).numpy()
            correct += int((logits.argmax(1) == y).sum())
    return total / len(indices), correct / len(indices)


def evaluate(model: FlatModel, task: Task, indices: np.ndarray) -> Score:
    """Score the model as it stands on some rows of the task."""
    if not len(indices):
        raise ValueError("there are no rows to evaluate on")
    loss, correct = 0.0, 0
    with inference(model.module):
        for start in range(0, len(indices), BATCH):
            x, y = task.rows(indices[start : start + BATCH])
            y = y.to(model.device)
            logits = model.module(x.to(model.device))
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            correct += int((logits.argmax(1) == y).sum())
    return Score(loss / len(indices), correct, len(indices))
