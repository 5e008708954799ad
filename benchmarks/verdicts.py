"""Holds what was measured against what is asked: one line per target."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.report import (
    OURS,
    PLAIN_FLOWER,
    REFERENCE,
    STEP_TARGETS,
    StepCost,
    Trial,
    WorkloadReport,
    beside_training,
    quartiles,
    ratios,
    table,
)

GIGABYTE = 1e9
MOST_DRIFT = 0.2  # gigabytes by which other processes may change while memory is measured


@dataclass(frozen=True)
class Verdict:
    """A target and what was measured; ``met`` is None where nothing was."""

    what: str
    target: str
    measured: str = "-"
    met: bool | None = None


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    """Write all verdicts."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = [[v.what, v.target, v.measured, words[v.met]] for v in verdicts]
    return table(("what", "target", "measured", "verdict"), rows)


def at_most(what: str, limit: float, unit: str, found: Sequence[float], digits: int = 2) -> Verdict:
    """Judge the median of some numbers."""
    return _judged(what, f"at most {limit:g}{unit}", unit, found, digits, lambda v: v <= limit)


def at_least(
    what: str, limit: float, unit: str, found: Sequence[float], digits: int = 2
) -> Verdict:
    """Judge the median of some numbers."""
    return _judged(what, f"at least {limit:g}{unit}", unit, found, digits, lambda v: v >= limit)


def of_workload(report: WorkloadReport) -> list[Verdict]:
    """Judge a workload by all its targets."""
    targets, name, trial = report.targets, report.name, _finished(report)
    found = []
    if targets.of_plain_loop:
        times = ratios(report.trials, OURS, REFERENCE)
        found.append(at_most(f"{name}, round beside (b)'s", targets.of_plain_loop, " x", times))
    if targets.ahead_of_flower:
        times = ratios(report.trials, PLAIN_FLOWER, OURS)
        what = f"{name}, (c)'s round beside fedsuite's"
        found.append(at_least(what, targets.ahead_of_flower, " x", times))
    if targets.replies:
        found.append(_replies(f"{name}, replies in every round", targets.replies, trial))
    if targets.machine_gigabytes:
        what = f"{name}, memory of the machine above idle"
        found.append(_memory(what, targets.machine_gigabytes, trial))
    if targets.beside_training:
        seconds = [beside_training(trial)] if trial else []
        what = f"{name}, round beside training"
        found.append(at_most(what, targets.beside_training, " s", seconds))
    return found


def of_steps(name: str, costs: Sequence[StepCost]) -> list[Verdict]:
    """Hold the local corrections against what they may cost."""
    known = {cost.algo: [cost.ratio] for cost in costs if not cost.error}
    return [
        at_most(f"{name}'s model, step of {algo} beside fedavg's", limit, " x", known[algo], 3)
        for algo, limit in STEP_TARGETS.items()
        if algo in known
    ]


def _judged(
    what: str,
    target: str,
    unit: str,
    found: Sequence[float],
    digits: int,
    holds: Callable[[float], bool],
) -> Verdict:
    if not found:
        return Verdict(what, target)
    value, (low, high) = statistics.median(found), quartiles(found)
    spread = f" ({low:.{digits}f} to {high:.{digits}f})" if len(found) > 1 else ""
    return Verdict(what, target, f"{value:.{digits}f}{unit}{spread}", holds(value))


def _memory(what: str, limit: float, trial: Trial | None) -> Verdict:
    """Judge memory, unless other processes took or gave back so much that nobody can tell."""
    found = at_most(what, limit, " GB", [trial.machine_bytes / GIGABYTE] if trial else [])
    drift = trial.drift_bytes / GIGABYTE if trial else 0.0
    if drift <= MOST_DRIFT:
        return found
    said = f"{found.measured}, while other processes changed by {drift:.2f} GB"
    return dataclasses.replace(found, measured=said, met=None)


def _replies(what: str, wanted: int, trial: Trial | None) -> Verdict:
    if trial is None:
        return Verdict(what, f"all {wanted:,}")
    fewest = min(row.clients for row in trial.rounds)
    measured = f"{fewest:,} or more in {len(trial.rounds)} rounds"
    return Verdict(what, f"all {wanted:,}", measured, fewest == wanted)


def _finished(report: WorkloadReport) -> Trial | None:
    trial = report.trials.get(OURS)
    return None if trial is None or trial.error else trial
