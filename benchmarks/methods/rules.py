"""Who is ahead: nothing but the rows of runs decides, by paired differences over seeds.

The best method of a column has the highest mean. Another is behind it, or ahead of a reference, if
the 95 % t-interval of the paired difference over seeds excludes zero; else it is level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.claims.rows import Row, by_seed
from benchmarks.claims.rules import FEWEST_SEEDS
from fedsuite.report.statistics import mean, paired_difference

Scores = Mapping[str, Mapping[str, float]]  # of methods, by seed


@dataclass(frozen=True)
class Standing:
    """The best method of a column, and those that are level with it, best first."""

    best: str
    level: tuple[str, ...]

    @property
    def first(self) -> tuple[str, ...]:
        """All of which none is clearly behind another."""
        return (self.best, *self.level)


@dataclass(frozen=True)
class Sides:
    """The methods clearly ahead of a reference and those clearly behind it, best first."""

    ahead: tuple[str, ...]
    behind: tuple[str, ...]


def scores(rows: Sequence[Row], labels: Mapping[str, object], metric: str) -> Scores:
    """Return a metric of every method by seed, of those that have it in all the seeds."""
    methods = dict.fromkeys(row["algo"] for row in rows)
    found = {m: by_seed(rows, {**labels, "algo": m}, metric) for m in methods}
    most = max(map(len, found.values()), default=0)
    return {method: values for method, values in found.items() if values and len(values) == most}


def by_mean(found: Scores) -> list[str]:
    """Return the methods, best first."""
    return sorted(found, key=lambda method: (-mean(list(found[method].values())), method))


def standing(found: Scores) -> Standing:
    """Return who is best, and who cannot be told from it."""
    best, *others = by_mean(found)
    return Standing(best, tuple(o for o in others if not difference(found, best, o)))


def sides(found: Scores, reference: str) -> Sides:
    """Return who is clearly ahead of a method, and who is clearly behind."""
    others = [method for method in by_mean(found) if method != reference]
    signs = {method: difference(found, method, reference) for method in others}
    return Sides(
        tuple(method for method in others if signs[method] > 0),
        tuple(method for method in others if signs[method] < 0),
    )


def difference(found: Scores, one: str, other: str) -> int:
    """Return 1 if one method is clearly ahead of another, -1 if behind, 0 if level."""
    common = [seed for seed in found[one] if seed in found[other]]
    if len(common) < FEWEST_SEEDS:
        return 0
    interval = paired_difference([found[one][s] - found[other][s] for s in common])
    if not interval.clear:
        return 0
    return 1 if interval.mean > 0 else -1
