"""A task: one dataset divided among clients, ready to be trained on.

The order is fixed: the probe set is taken out of the training rows first, then train and test are
pooled if asked, then clients get their parts, then each client's own test rows are held out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from fedsuite.core import seeds
from fedsuite.core.files import replacing
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid
from tasks.dataset_cache import Dataset, default_cache_dir, load_dataset
from tasks.partitioning import fingerprint, partition
from tasks.task_spec import TaskSpec

SPLIT_VERSION = 1


@dataclass(frozen=True)
class Split:
    """Row numbers: per client for training and for its own test, of the probe, of the test."""

    train: list[np.ndarray]
    own_test: list[np.ndarray]
    probe: np.ndarray
    test: np.ndarray
    name: str = ""

    @property
    def fingerprint(self) -> str:
        """A short name of this split."""
        return self.name or fingerprint([*self.train, *self.own_test, self.probe, self.test])


class Task:
    """A dataset's resident tensors and its split."""

    def __init__(self, dataset: Dataset, split: Split) -> None:
        self.dataset, self.split, self.shape = dataset, split, dataset.shape
        self._x = torch.from_numpy(self.dataset.x)
        self._y = torch.from_numpy(self.dataset.y)

    def rows(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather rows as a model takes them: images NCHW in channels-last memory, ids as int64."""
        index = torch.from_numpy(indices)
        x, y = self._x.index_select(0, index), self._y.index_select(0, index)
        if self.shape.kind == "image":
            return x.permute(0, 3, 1, 2), y
        return (x if x.is_floating_point() else x.long()), y

    def labels(self, indices: np.ndarray) -> np.ndarray:
        """Return the labels of some rows."""
        return self.dataset.y[indices]


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
    dataset = load_dataset(spec.dataset, spec.data_root)
    return Task(dataset, _cached_split(spec, dataset))


def divide(spec: TaskSpec, dataset: Dataset) -> Split:
    """Cut a dataset into a probe set, clients' parts and their own test rows."""
    train_rows = np.arange(dataset.num_train)
    test_rows = np.arange(dataset.num_train, len(dataset.y))
    probe = draw_probe(dataset, train_rows, spec.probe_per_class, spec.seed)
    pool = np.setdiff1d(train_rows, probe, assume_unique=True)
    if spec.pool_train_test:
        pool = np.concatenate([pool, test_rows])
    parts = partition(
        spec.partition,
        dataset.y[pool],
        spec.num_clients,
        spec.options,
        seeds.integer(spec.seed, "partition"),
        owners=None if dataset.owners is None else dataset.owners[pool],
        num_classes=dataset.shape.num_classes if dataset.shape.kind != "chars" else 0,
    )
    train, own_test = [], []
    for client, part in enumerate(parts):
        kept, held = hold_out(pool[part], spec.client_test_fraction, spec.seed, client)
        train.append(kept)
        own_test.append(held)
    test = np.sort(np.concatenate(own_test)) if spec.pool_train_test else test_rows
    return Split(train, own_test, probe, test)


def draw_probe(dataset: Dataset, rows: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Take ``per_class`` rows of every class out of some rows.

    Characters too rare for that are left out; any other class must have them.
    """
    if per_class == 0:
        return np.zeros(0, dtype=np.int64)
    draw = seeds.generator(seed, "probe")
    labels = dataset.y[rows]
    chosen = []
    for label in range(dataset.shape.num_classes):
        candidates = rows[labels == label]
        if len(candidates) <= per_class:
            if dataset.shape.kind == "chars":
                continue
            raise invalid(
                "probe-per-class",
                per_class,
                f"class {label} of {dataset.spec.name} has {len(candidates)} training samples, and "
                "some must remain. Use a smaller number.",
            )
        chosen.append(draw.choice(candidates, per_class, replace=False))
    return np.sort(np.concatenate(chosen))


def hold_out(
    rows: np.ndarray, fraction: float, seed: int, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a client's own test rows; both sides keep at least one row."""
    if fraction == 0:
        return rows, rows[:0]
    if len(rows) < 2:
        raise UserError(
            f"client-test-fraction = {fraction} needs at least 2 samples per client, "
            f"but client {client} has {len(rows)}. Use fewer clients or another partition."
        )
    count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
    order = seeds.generator(seed, "hold-out", client).permutation(len(rows))
    return np.sort(rows[order[count:]]), np.sort(rows[order[:count]])


def _cached_split(spec: TaskSpec, dataset: Dataset) -> Split:
    """Divide once per machine: workers that start later read what the first one wrote."""
    identity = {
        "version": SPLIT_VERSION,
        "rows": [len(dataset.y), dataset.num_train],
        "labels": hashlib.sha256(dataset.y.tobytes()).hexdigest(),
    }
    key = json.dumps(asdict(spec) | identity, sort_keys=True)
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    path = default_cache_dir() / "splits" / name
    if path.exists():
        return _read_split(path)
    split = divide(spec, dataset)
    _write_split(path, split)
    return split


def _read_split(path: Path) -> Split:
    with np.load(path) as arrays:
        train = np.split(arrays["train"], arrays["train_ends"][:-1])
        own_test = np.split(arrays["own_test"], arrays["own_test_ends"][:-1])
        return Split(train, own_test, arrays["probe"], arrays["test"])


def _write_split(path: Path, split: Split) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            train=np.concatenate(split.train),
            train_ends=np.cumsum([len(part) for part in split.train]),
            own_test=np.concatenate(split.own_test),
            own_test_ends=np.cumsum([len(part) for part in split.own_test]),
            probe=split.probe,
            test=split.test,
        )
