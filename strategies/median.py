"""Coordinate-wise median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust
Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.

``w <- w + server_lr median_i v_i``, or the mean of what is left of each coordinate once its
``floor(trim n)`` smallest and as many largest values are gone. Samples do not count. Batch-norm
statistics are reduced in the same way, or else an attacker would change the model through them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, column_blocks
from strategies.base import BaseStrategy, Round
from strategies.fedavg import uniform_weights

ROUNDING = 1e-9


@dataclass(frozen=True)
class TrimmedMeanParams:
    """Settings of the trimmed mean."""

    trim: float = setting(
        0.2, "share of clients left out at either end; 0 = plain mean", low=0, high=0.499
    )


class ByColumn(BaseStrategy):
    """Reduces each coordinate by itself."""

    @abstractmethod
    def reduce(self, rows: np.ndarray) -> np.ndarray:
        """Return a number for each column."""

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the reduced updates."""
        return self.advance(this_round, self._by_column(this_round.updates))

    def aggregate_buffers(self, this_round: Round) -> Vector:
        """Reduce statistics too, unless the updates were averaged."""
        if this_round.weights is not None:
            return super().aggregate_buffers(this_round)
        return self._by_column(this_round.buffers)

    def _by_column(self, rows: Matrix) -> Vector:
        found = [self.reduce(rows[:, block]) for block in column_blocks(rows)]
        return np.concatenate(found).astype(np.float32)


class Median(ByColumn):
    """The median of each coordinate."""

    def reduce(self, rows: np.ndarray) -> np.ndarray:
        """Return the median of each column; of an even number, the mean of the middle two."""
        return np.median(rows.astype(np.float64), axis=0)


class TrimmedMean(ByColumn):
    """The mean of each coordinate without its extremes."""

    Params = TrimmedMeanParams

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the trimmed mean update."""
        if count_in(self.params.trim, len(this_round.clients)):
            return super().aggregate(this_round)
        return self.step(this_round, uniform_weights(len(this_round.clients)))

    def reduce(self, rows: np.ndarray) -> np.ndarray:
        """Return the trimmed mean of each column."""
        return trimmed_mean(rows, count_in(self.params.trim, len(rows)))


def trimmed_mean(rows: np.ndarray, cut: int) -> np.ndarray:
    """Return the mean of each column without its ``cut`` smallest and largest values.

    >>> trimmed_mean(np.array([[9.0], [1.0], [3.0], [2.0]]), 1)
    array([2.5])
    """
    middle = np.sort(rows, axis=0)[cut : len(rows) - cut]
    return middle.mean(axis=0, dtype=np.float64)


def count_in(share: float, clients: int) -> int:
    """Return how many of some clients a share is, rounded down, but not for a rounding error.

    >>> count_in(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(share * clients + ROUNDING)
