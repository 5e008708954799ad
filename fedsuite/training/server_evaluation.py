"""What the server scores by itself: models on the test rows and on the probe set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuite.config import RunConfig
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.vector import Vector
from tasks.evaluation import evaluate, mean_probabilities, scored_rows
from tasks.task import Task


class ServerEvaluation:
    """Scores models, given as vectors, with the rows that the server has."""

    def __init__(self, model: FlatModel, task: Task, config: RunConfig) -> None:
        self._model, self._task = model, task
        self._test_rows = scored_rows(task.split.test, config.eval_rows, config.seed)

    @property
    def has_test_rows(self) -> bool:
        """Whether there are test rows; with data of the nodes' own the server may have none."""
        return len(self._test_rows) > 0

    def score(self, weights: Vector, buffers: Vector) -> dict[str, Any]:
        """Return a model's scores on the test rows."""
        self._model.load(weights, buffers)
        return evaluate(self._model, self._task, self._test_rows).record()

    def accuracies(self, models: Mapping[str, Vector], buffers: Vector) -> dict[str, float]:
        """Return the accuracy of each of some models on the test rows."""
        return {name: self.score(w, buffers)["accuracy"] for name, w in models.items()}

    def probe(self, weights: Vector, buffers: Vector) -> tuple[np.ndarray, float]:
        """Return a model's mean class probabilities and accuracy on the probe set."""
        self._model.load(weights, buffers)
        return mean_probabilities(self._model, self._task, self._task.split.probe)
