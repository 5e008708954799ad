"""Statistics over seeds: mean, deviation, confidence interval of a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences and its confidence interval; None for a single pair."""

    pairs: int
    mean: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired_difference(differences: Sequence[float]) -> Difference:
    """Return the mean and its 95 % interval by Student's t distribution."""
    centre, spread = mean(differences), deviation(differences)
    if spread is None:
        return Difference(len(differences), centre, None, None)
    from scipy.stats import t

    count = len(differences)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread / math.sqrt(count)
    return Difference(count, centre, centre - half, centre + half)
