"""What the baselines work on: a folder of plain arrays and one JSON document.

Everything slow (parquet, partitioning) is done before; a process only maps ``.npy`` files, so that
no variant is slower than another because of how it finds its data.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.models import build_model
from tasks.shapes import DataShape

Rows = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Job:
    """How to train: the same numbers for every variant."""

    model: str
    model_seed: int
    shape: DataShape
    rounds: int
    batch_size: int
    local_epochs: int
    local_steps: int
    lr: float

    def build_model(self) -> nn.Module:
        """Make the model with the weights every variant starts from."""
        return build_model(self.model, self.shape, self.model_seed)

    def save(self, folder: Path) -> None:
        """Write the job's document."""
        (folder / "job.json").write_text(json.dumps(asdict(self)))


def as_input(x: torch.Tensor) -> torch.Tensor:
    """View stored rows as a model takes them: images NHWC in memory, NCHW in name, as the suite's.

    This layout alone makes LeNet's step much faster than contiguous NCHW does, so a baseline
    without it would lose for a reason that has nothing to do with how clients are run.
    """
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


class JobData:
    """The arrays of a job: rows as they are stored, and who has which."""

    def __init__(self, folder: Path) -> None:
        self._x = np.load(folder / "x.npy", mmap_mode="c")
        self._y = np.load(folder / "y.npy")
        with np.load(folder / "split.npz") as split:
            self.parts = np.split(split["train"], split["ends"][:-1])
            self._test = split["test"]

    def client(self, number: int) -> Rows:
        """Return one client's rows as tensors of their own."""
        return self._take(self.parts[number])

    def test(self) -> Rows:
        """Return the test rows."""
        return self._take(self._test)

    def _take(self, rows: np.ndarray) -> Rows:
        return torch.from_numpy(self._x[rows]), torch.from_numpy(self._y[rows])


@lru_cache(maxsize=1)
def open_job(folder: Path) -> tuple[Job, JobData]:
    """Open a job once per process."""
    document: dict[str, Any] = json.loads((folder / "job.json").read_text())
    shape = document.pop("shape")
    shape["input_shape"] = tuple(shape["input_shape"])
    return Job(shape=DataShape(**shape), **document), JobData(folder)


def save_arrays(
    folder: Path, x: np.ndarray, y: np.ndarray, parts: list[np.ndarray], test: np.ndarray
) -> None:
    """Write what :class:`JobData` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    ends = np.cumsum([len(part) for part in parts])
    np.savez(folder / "split.npz", train=np.concatenate(parts), ends=ends, test=test)


class RoundLog:
    """Times of rounds, written once at the end so that writing costs no round anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, float]] = []

    def add(self, number: int, seconds: float, accuracy: float, loss: float, **more: float) -> None:
        """Note a round."""
        row = {"round": number, "seconds": seconds, "accuracy": accuracy, "loss": loss}
        self._rows.append(row | more)

    def write(self) -> None:
        """Write all rounds."""
        self._path.write_text(json.dumps(self._rows))
