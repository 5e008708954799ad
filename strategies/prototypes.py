"""What methods have in common whose clients share class prototypes and keep their models."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedsuite.core.vector import Doubles, Vector, last_layer
from strategies.base import BaseStrategy, RunInfo


class SharedPrototypes(BaseStrategy):
    """Hears of the mean features of each client's classes, and of how many samples they stand for.

    A prototype has as many entries as the last layer has inputs.
    """

    expects: ClassVar[tuple[str, ...]] = ("prototypes", "counts")
    shares_model: ClassVar[bool] = False

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.classes, self.width = info.shapes[next(iter(last_layer(info.shapes)))]

    def evaluation_broadcast(self) -> dict[str, Vector]:
        """Send what training gets: clients predict with the prototypes."""
        return self.broadcast()

    def lengths(self) -> dict[str, int]:
        """One row of features and one count per class."""
        return {"prototypes": self.classes * self.width, "counts": self.classes}


def class_means(sent: np.ndarray, held: np.ndarray) -> tuple[Doubles, np.ndarray]:
    """Return each class's mean over the clients that have it, and which classes any has."""
    holders = held.sum(axis=0)
    sums = np.where(held[:, :, None], sent, 0.0).sum(axis=0, dtype=np.float64)
    return sums / np.maximum(holders, 1)[:, None], holders > 0
