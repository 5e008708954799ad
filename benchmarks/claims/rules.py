"""The rule by which a claim is judged: nothing but the rows of its runs decides.

A comparison is the mean over seeds of paired differences, counted so that a positive one is in
the claim's favour, with its 95 % t-interval. Above zero the claim is shown, below zero its opposite
is, else it is not shown. A claim about a level is shown if the whole interval of the mean over
seeds is within the bounds. With fewer than three seeds nothing is judged. A claim of several
comparisons is shown if all are, and opposite if any is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from benchmarks.claims.rows import OTHER_OUTPUT, Row, by_seed
from fedsuite.core.settings import UserError
from fedsuite.metrics import LOWER, METRICS
from fedsuite.report.statistics import Difference, mean, paired_difference

FEWEST_SEEDS = 3
Labels = Mapping[str, object]


class Verdict(StrEnum):
    """What the runs say of a claim."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    OPPOSITE = "opposite"
    CANNOT = "cannot be run here"
    TOO_FEW = "too few seeds"
    NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Claim:
    """What a paper says of one or more runs, and how to tell.

    ``ours`` are the labels of the runs it speaks of; each of ``than`` changes some of them to name
    what they are compared with, or ``than_metric`` names another number of the same runs. ``least``
    and ``most`` bound the level that is claimed instead. ``cannot`` says why it is not run here.
    ``afterwards`` marks a reading that was tried once the results were seen: it is shown apart, and
    is no verdict on the paper's claim.
    """

    paper: str
    where: str
    says: str
    suite: str = ""
    metric: str = ""
    ours: Labels = field(default_factory=dict)
    than: Sequence[Labels] = ()
    than_metric: str = ""
    least: float | None = None
    most: float | None = None
    printed: str = ""
    cannot: str = ""
    notes: str = ""
    afterwards: bool = False

    @property
    def bounded(self) -> bool:
        """Whether it claims a level."""
        return self.least is not None or self.most is not None


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured: means over seeds, the difference or the level, a verdict.

    With several comparisons the difference is the one that is least in the claim's favour.
    """

    claim: Claim
    verdict: Verdict
    ours: float | None = None
    other: float | None = None
    against: Labels = field(default_factory=dict)
    interval: Difference | None = None


def read_claims(document: Mapping[str, Any]) -> list[Claim]:
    """Read the claims of a file; refuse one that nothing could decide."""
    claims = [
        Claim(**{key.replace("-", "_"): value for key, value in table.items()})
        for table in document["claim"]
    ]
    for claim in claims:
        kinds = [claim.than, claim.than_metric, claim.bounded, claim.cannot]
        if sum(map(bool, kinds)) != 1:
            raise UserError(
                f"{claim.paper}, {claim.where}: a claim has one of than, than-metric, bounds "
                "(least, most) and cannot."
            )
        if not claim.cannot and not (claim.suite and claim.metric and claim.ours):
            raise UserError(f"{claim.paper}, {claim.where}: suite, metric and ours are needed.")
    return claims


def judge(claim: Claim, rows: Sequence[Row]) -> Finding:
    """Hold a claim against the rows of its suite."""
    if claim.cannot:
        return Finding(claim, Verdict.CANNOT)
    found = by_seed(rows, claim.ours, claim.metric)
    if not found:
        return Finding(claim, Verdict.NOT_RUN)
    if claim.bounded:
        return _level(claim, found)
    sides = [(labels, claim.metric) for labels in claim.than] or [({}, claim.than_metric)]
    judged = [
        _comparison(claim, found, labels, by_seed(rows, {**claim.ours, **labels}, metric))
        for labels, metric in sides
    ]
    weakest = min(judged, key=lambda finding: (_order(finding.verdict), _favour(finding)))
    return weakest


def scale_of(metric: str) -> float:
    """Return by what a recorded number is multiplied to be shown."""
    known = METRICS.get("final_accuracy" if metric == OTHER_OUTPUT else metric)
    return 100.0 if known and known.share else 1.0


def _comparison(
    claim: Claim, found: Mapping[str, float], labels: Labels, others: Mapping[str, float]
) -> Finding:
    if not others:
        return Finding(claim, Verdict.NOT_RUN, against=labels)
    known = METRICS.get(claim.metric)
    sign = -1.0 if known and known.better == LOWER else 1.0
    common = [seed for seed in found if seed in others]
    ours, other = mean(list(found.values())), mean(list(others.values()))
    if len(common) < FEWEST_SEEDS:
        return Finding(claim, Verdict.TOO_FEW, ours, other, labels)
    interval = paired_difference([sign * (found[seed] - others[seed]) for seed in common])
    verdict = Verdict.NOT_SHOWN
    if interval.clear:
        verdict = Verdict.SHOWN if interval.mean > 0 else Verdict.OPPOSITE
    return Finding(claim, verdict, ours, other, labels, interval)


def _level(claim: Claim, found: Mapping[str, float]) -> Finding:
    ours = mean(list(found.values()))
    if len(found) < FEWEST_SEEDS:
        return Finding(claim, Verdict.TOO_FEW, ours)
    interval = paired_difference(list(found.values()))
    low = ours if interval.low is None else interval.low
    high = ours if interval.high is None else interval.high
    enough = claim.least is None or low >= claim.least
    little = claim.most is None or high <= claim.most
    verdict = Verdict.SHOWN if enough and little else Verdict.NOT_SHOWN
    return Finding(claim, verdict, ours, interval=interval)


def _order(verdict: Verdict) -> int:
    """Return how far down a verdict draws a claim of several comparisons."""
    order = (
        Verdict.OPPOSITE,
        Verdict.NOT_RUN,
        Verdict.TOO_FEW,
        Verdict.NOT_SHOWN,
        Verdict.SHOWN,
    )
    return order.index(verdict)


def _favour(finding: Finding) -> float:
    return finding.interval.mean if finding.interval else 0.0
