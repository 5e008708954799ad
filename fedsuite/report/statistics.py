"""Statistics over seeds: mean, deviation, confidence interval of a difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95
ROUNDING = 1e-9


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
    """A difference of means and its confidence interval, None if there is none.

    ``pairs`` is how many paired values it is of; 0 if they are not paired.
    """

    pairs: int
    mean: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired_difference(differences: Sequence[float]) -> Difference:
    """Return the mean and its 95 % interval by Student's t distribution.

    Equal differences other than zero have none: a few seeds that agree are not certain.
    """
    centre, spread = mean(differences), deviation(differences)
    if spread is None or is_no_evidence(spread, centre):
        return Difference(len(differences), centre, None, None)
    from scipy.special import stdtrit

    count = len(differences)
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * spread / math.sqrt(count)
    return Difference(count, centre, centre - half, centre + half)


def unpaired_difference(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """Return the difference of two means and its 95 % interval, by Welch's t."""
    centre = mean(ones) - mean(others)
    spreads = deviation(ones), deviation(others)
    if spreads[0] is None or spreads[1] is None:
        return Difference(0, centre, None, None)
    from scipy.special import stdtrit

    a, b = spreads[0] ** 2 / len(ones), spreads[1] ** 2 / len(others)
    if is_no_evidence(math.sqrt(a + b), centre):
        return Difference(0, centre, None, None)
    if a + b == 0.0:
        return Difference(0, centre, centre, centre)
    freedom = (a + b) ** 2 / (a**2 / (len(ones) - 1) + b**2 / (len(others) - 1))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(a + b)
    return Difference(0, centre, centre - half, centre + half)


def is_no_evidence(spread: float, centre: float) -> bool:
    """Return whether there is a difference and, but for rounding, no spread to judge it by."""
    return centre != 0.0 and spread <= ROUNDING * abs(centre)


def difference_of_means(ones: Mapping[Any, float], others: Mapping[Any, float]) -> Difference:
    """Return how far apart two methods are, given values by seed.

    Paired where two seeds or more are common, else unpaired.
    """
    common = [seed for seed in ones if seed in others]
    if len(common) > 1:
        return paired_difference([ones[seed] - others[seed] for seed in common])
    return unpaired_difference(list(ones.values()), list(others.values()))
