"""Tests of paired differences, by hand and as scipy computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from fedsuite.report.significance import (
    cohens_d,
    examine,
    holm,
    least_wilcoxon,
    seeds_needed,
    t_test,
    wilcoxon,
)


def test_t_with_two_and_three_seeds_by_its_closed_forms() -> None:
    # 1, 3: mean 2, deviation sqrt(2), t = 2. One degree of freedom is a Cauchy distribution.
    assert t_test([1.0, 3.0]) == pytest.approx(1 - 2 / math.pi * math.atan(2))
    # 1, 2, 3: mean 2, deviation 1, t^2 = 12. With two degrees, p = 1 - t / sqrt(t^2 + 2).
    assert t_test([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert t_test([-1.0, -2.0, -3.0]) == pytest.approx(1 - math.sqrt(12 / 14))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([0.1, 0.5, 0.2], 2 / 8),  # all signs agree: one of 8 ways, and its mirror
        ([3.0, 4.0, -1.0], 4 / 8),  # the negative ranks sum to 1; of 8 sums, two are <= 1
        ([1.0, 2.0, -3.0], 1.0),  # 3 against 3
        ([2.0, 2.0, -1.0], 4 / 8),  # ranks 2.5, 2.5, 1
        ([2.0, -2.0, 2.0], 1.0),  # ranks 2, 2, 2: sums of 2 or less are 4 of 8
        ([0.0, 1.0, 2.0], 2 / 4),  # the zero is left out
        ([0.0, 0.0], 1.0),
        ([1.0] * 10, 2 / 1024),
        ([0.3 - 0.2, 0.2 - 0.1, -0.1], 1.0),  # equal but for rounding
    ],
)
def test_wilcoxon_counts_the_ways_to_sign_ranks(differences: Sequence[float], p: float) -> None:
    assert wilcoxon(differences) == pytest.approx(p)


def test_one_seed_has_no_p_value_and_equal_differences_have_no_t() -> None:
    assert t_test([1.0]) is None
    assert wilcoxon([1.0]) is None
    assert cohens_d([1.0]) is None
    for equal in ([0.0, 0.0, 0.0], [0.7, 0.7, 0.7]):
        assert t_test(equal) is None
        assert cohens_d(equal) is None


def test_the_least_p_of_wilcoxon() -> None:
    assert [least_wilcoxon(n) for n in (1, 2, 3, 5, 6)] == [1.0, 0.5, 0.25, 0.0625, 0.03125]


def test_p_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for count in (2, 3, 5, 8, 13, 30, 50):
        differences = rng.normal(0.3, 1.0, count)
        assert t_test(differences.tolist()) == pytest.approx(
            stats.ttest_1samp(differences, 0.0).pvalue, rel=1e-9
        )
        assert wilcoxon(differences.tolist()) == pytest.approx(
            stats.wilcoxon(differences, method="exact").pvalue, rel=1e-9
        )


def test_ties_and_zeros_by_enumeration() -> None:
    differences = [3.0, -2.0, 1.0, 4.0, 4.0, -1.0, 0.0]
    ranks = np.array([4.0, 3.0, 1.5, 5.5, 5.5, 1.5])
    signs = (np.arange(2**6)[:, None] >> np.arange(6)) & 1
    sums = signs @ ranks
    assert wilcoxon(differences) == pytest.approx(2 * np.mean(sums <= 3.0 + 1.5))


def test_holm_multiplies_the_smallest_by_the_whole_family() -> None:
    # 3 * 0.01, 2 * 0.03, and 0.04 may not fall below the one before
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_cohens_d_is_the_mean_in_deviations() -> None:
    assert cohens_d([1.0, 2.0, 3.0]) == pytest.approx(2.0)
    assert cohens_d([-1.0, -3.0]) == pytest.approx(-math.sqrt(2))


def test_seeds_needed_are_those_of_the_tables_of_power() -> None:
    """A large effect of 0.8 needs 15 pairs, a middle one of 0.5 needs 34, one of 0.2 199."""
    assert [seeds_needed(1 / effect) for effect in (0.8, 0.5, 0.2)] == [15, 34, 199]
    assert seeds_needed(1.0, gap=0.5) == 34
    assert seeds_needed(1e-6) == 2


@pytest.mark.parametrize("spread", [0.3, 1.7, 6.0])
def test_one_seed_less_would_not_do(spread: float) -> None:
    def power(seeds: int) -> float:
        limit = stats.t.ppf(0.975, seeds - 1)
        shifted = stats.nct(seeds - 1, math.sqrt(seeds) / spread)
        return float(shifted.sf(limit) + shifted.cdf(-limit))

    found = seeds_needed(spread)
    assert power(found) >= 0.8 > power(found - 1)


def test_a_family_is_corrected_as_a_whole() -> None:
    clear, equal, endless = examine([[1.0, 2.0, 3.0], [0.5] * 3, [1.0, math.inf, 2.0]], gap=1.0)
    assert clear.t_holm == clear.t == pytest.approx(1 - math.sqrt(12 / 14)), "the only t"
    assert clear.wilcoxon == equal.wilcoxon == 0.25
    assert clear.wilcoxon_holm == equal.wilcoxon_holm == 0.5
    assert (clear.seeds, equal.seeds) == (10, None), "at a deviation of 1, and of nothing"
    assert endless.t is endless.wilcoxon is endless.effect is endless.seeds is None
    assert examine([[1.0, 2.0, 3.0]])[0].seeds is None
