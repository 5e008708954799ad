"""A task: a dataset's rows as tensors, and their split among clients."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import invalid
from tasks.dataset_cache import Dataset, load_dataset
from tasks.split import Split, cached_split, label_counts
from tasks.task_spec import TaskSpec


class Task:
    """A dataset's resident tensors and its split."""

    def __init__(self, dataset: Dataset, split: Split) -> None:
        self.dataset, self.split, self.shape = dataset, split, dataset.shape
        self._x = torch.from_numpy(self.dataset.x)
        self._y = torch.from_numpy(self.dataset.y)

    def rows(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather rows as a model takes them, and their labels."""
        index = torch.from_numpy(indices)
        x, y = self._x.index_select(0, index), self._y.index_select(0, index)
        return as_model_input(x, self.shape.kind), y

    @property
    def row_bytes(self) -> int:
        """Memory that a gathered row takes."""
        return int(self._x[:1].numel()) * (4 if self._x.is_floating_point() else 8)

    def label_counts(self) -> np.ndarray:
        """Count every client's training rows by class, as a (num_clients, num_classes) array."""
        return label_counts(self.split.train, self.dataset.y, self.shape.num_classes)

    def labels(self, indices: np.ndarray) -> np.ndarray:
        """Return the labels of some rows."""
        return self.dataset.y[indices]


def as_model_input(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Return rows as a model takes them: images NCHW in channels-last memory, ids as int64."""
    if kind == "image":
        return x.permute(0, 3, 1, 2)
    return x if x.is_floating_point() else x.long()


@lru_cache(maxsize=2)
def open_task(spec: TaskSpec) -> Task:
    """Return the task, opened once per process."""
    if spec.partition == OWN and spec.dataset != OWN:
        raise invalid(
            "partition",
            OWN,
            "only deployed SuperNodes have data of their own; for a simulation see "
            "`fedsuite list partitions`.",
        )
    dataset = load_dataset(spec.dataset, spec.data_root, columns=spec.columns)
    return Task(dataset, cached_split(spec, dataset))
