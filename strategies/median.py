"""Coordinate-wise median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust
Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.

``w <- w + server_lr median_i v_i``, or the mean of what is left of each coordinate once its
``floor(trim n)`` smallest and as many largest values are gone. Samples do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, column_blocks
from strategies.base import BaseStrategy, Round
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class TrimmedMeanParams:
    """Settings of the trimmed mean."""

    trim: float = setting(
        0.2, "share of clients left out at either end; 0 = plain mean", low=0, high=0.499
    )


class Median(BaseStrategy):
    """The median of each coordinate."""

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the median update."""
        return self.advance(this_round, by_column(this_round.updates, column_median))


class TrimmedMean(BaseStrategy):
    """The mean of each coordinate without its extremes."""

    Params = TrimmedMeanParams

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the trimmed mean update."""
        cut = int(self.params.trim * len(this_round.clients))
        if not cut:
            return self.step(this_round, uniform_weights(len(this_round.clients)))
        move = by_column(this_round.updates, lambda block: trimmed_mean(block, cut))
        return self.advance(this_round, move)


def by_column(rows: Matrix, reduce: Callable[[np.ndarray], np.ndarray]) -> Vector:
    """Reduce every column to a number, a block of columns at a time."""
    found = [reduce(rows[:, block]) for block in column_blocks(rows.shape[1])]
    return np.concatenate(found).astype(np.float32)


def column_median(rows: np.ndarray) -> np.ndarray:
    """Return the median of each column; of an even number, the mean of the middle two."""
    return np.median(rows.astype(np.float64), axis=0)


def trimmed_mean(rows: np.ndarray, cut: int) -> np.ndarray:
    """Return the mean of each column without its ``cut`` smallest and largest values.

    >>> trimmed_mean(np.array([[9.0], [1.0], [3.0], [2.0]]), 1)
    array([2.5])
    """
    middle = np.sort(rows, axis=0)[cut : len(rows) - cut]
    return middle.mean(axis=0, dtype=np.float64)
