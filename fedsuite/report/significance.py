"""Tests of paired differences: p-values, their correction, effect size, seeds needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from fedsuite.report.statistics import ROUNDING, deviation, is_no_evidence, mean

ALPHA = 0.05
POWER = 0.80


@dataclass(frozen=True)
class Evidence:
    """What tests make of paired differences, None where they can make nothing of them.

    ``t`` and ``wilcoxon`` are p-values, ``t_holm`` and ``wilcoxon_holm`` corrected for the family
    of comparisons; ``seeds`` is how many would find a given difference.
    """

    t: float | None
    t_holm: float | None
    wilcoxon: float | None
    wilcoxon_holm: float | None
    effect: float | None
    seeds: int | None


def examine(family: Sequence[Sequence[float]], gap: float | None = None) -> list[Evidence]:
    """Test each of a family of paired differences; ``gap`` is the difference to be found.

    Nothing can be made of differences that are not all finite, as of a loss that overflowed.
    """
    family = [each if all(map(math.isfinite, each)) else () for each in family]
    by_t, by_ranks = [t_test(each) for each in family], [wilcoxon(each) for each in family]
    effects = [cohens_d(each) for each in family]
    spreads = [deviation(each) for each in family]
    seeds = [
        seeds_needed(spread, gap) if gap and spread and effect is not None else None
        for spread, effect in zip(spreads, effects, strict=True)
    ]
    columns = (by_t, holm(by_t), by_ranks, holm(by_ranks), effects, seeds)
    return [Evidence(*row) for row in zip(*columns, strict=True)]


def t_test(differences: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the paired t-test.

    None for fewer than two differences, and where all are equal, since t needs a spread.
    """
    effect = cohens_d(differences)
    if effect is None:
        return None
    from scipy.special import stdtr

    return 2.0 * float(stdtr(len(differences) - 1, -abs(effect) * math.sqrt(len(differences))))


def wilcoxon(differences: Sequence[float]) -> float | None:
    """Return the exact two-sided p-value of Wilcoxon's signed-rank test; None for fewer than two.

    Of all ways to sign the ranks, it counts those at least as one-sided as these. Differences of
    zero are left out, as Wilcoxon did; equal ones share the mean of their ranks.
    """
    if len(differences) < 2:
        return None
    import numpy as np

    doubled, positive = _doubled_ranks(differences)
    chances = np.ones(1)  # of each sum of the positive ranks, if signs are fair coins
    for rank in doubled:
        grown = np.zeros(len(chances) + rank)
        grown[: len(chances)] += chances / 2
        grown[rank:] += chances / 2
        chances = grown
    least = min(positive, sum(doubled) - positive)
    return min(1.0, 2.0 * float(chances[: least + 1].sum()))


def _doubled_ranks(differences: Sequence[float]) -> tuple[list[int], int]:
    """Return twice the ranks of the sizes, without zeros, and twice the sum of the positive ones.

    Sizes that differ by rounding alone are equal. Doubled, a mean of ranks is a whole number.
    """
    grain = ROUNDING * max(map(abs, differences)) or 1.0
    steps = [step for step in (round(value / grain) for value in differences) if step]
    sizes = sorted(map(abs, steps))
    rank = {size: 2 * sizes.index(size) + 1 + sizes.count(size) for size in set(sizes)}
    return [rank[size] for size in sizes], sum(rank[step] for step in steps if step > 0)


def least_wilcoxon(pairs: int) -> float:
    """Return the least p-value that Wilcoxon's test can give: all differences of one sign."""
    return min(1.0, 2.0 ** (1 - pairs))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of a family of comparisons by Holm's method; None stays None.

    The risk that any of them is below 0.05 by chance alone is at most 5 %.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for done, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - done) * p))
        corrected[place] = largest
    return corrected


def cohens_d(differences: Sequence[float]) -> float | None:
    """Return Cohen's d of paired differences: their mean in units of their deviation.

    None for fewer than two differences, and where all are equal.
    """
    spread = deviation(differences)
    if not spread or is_no_evidence(spread, mean(differences)):
        return None
    return mean(differences) / spread


def seeds_needed(spread: float, gap: float = 1.0) -> int:
    """Return how many seeds a paired t-test needs to find a true difference of ``gap``.

    ``spread`` is the deviation of the differences over seeds; with these many, 80 % of experiments
    would give p < 0.05.
    """
    from scipy.special import nctdtr, ndtri, stdtrit

    effect = gap / spread
    at_least = ((ndtri(1 - ALPHA / 2) + ndtri(POWER)) / effect) ** 2  # as if spread were known
    for seeds in count(max(2, int(at_least))):
        shift, limit = effect * math.sqrt(seeds), stdtrit(seeds - 1, 1 - ALPHA / 2)
        if 1 - nctdtr(seeds - 1, shift, limit) + nctdtr(seeds - 1, shift, -limit) >= POWER:
            break
    return seeds
