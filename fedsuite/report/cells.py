"""The cells of a report's tables: one method in one setting, over its seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from fedsuite.metrics import METRICS, TARGET_METRICS, TO_TARGET, Metric, find_metric
from fedsuite.records.collection import Collection, PaperNumber
from fedsuite.records.reader import Run
from fedsuite.report.statistics import deviation, mean

NONE = "–"
BUSY_MARK = "†"
TARGETS_DIFFER = "targets differ"
TARGET, CPU_SHARE = METRICS["target_accuracy"], METRICS["cpu_share"]


@dataclass(frozen=True, order=True)
class Target:
    """What a run had to reach, of which metric."""

    value: float
    metric: str = TARGET_METRICS[0]

    def __str__(self) -> str:
        """Write it, e.g. ``70 %`` of accuracy, ``70 % macro-f1`` of another metric."""
        text = TARGET.with_unit(self.value)
        return text if self.metric == TARGET_METRICS[0] else f"{text} {self.metric}"


@dataclass(frozen=True)
class Cell:
    """One method in one setting: its value for each finished run that has one.

    ``by_seed`` has the same values by seed. ``targets`` are those of the runs, for a metric that
    depends on one; runs with several have no common value.
    """

    row: str
    column: str
    values: Sequence[float]
    by_seed: Mapping[Any, float]
    runs: Sequence[Run]
    targets: Sequence[Target]
    labels: Mapping[str, Any]
    paper: PaperNumber | None
    metric: Metric

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def busy(self) -> bool:
        """Whether it holds seconds of a run that competed for the cores."""
        return self.metric.is_time and any(run.busy for run in self.runs)

    @property
    def missed(self) -> bool:
        """Whether a run did not reach the target that the metric depends on."""
        return self.metric in TO_TARGET and len(self.values) < len(self.runs)

    @property
    def has_papers_target(self) -> bool:
        """Whether the runs' target, if the metric depends on one, is the paper's."""
        if self.metric not in TO_TARGET:
            return True
        theirs = self.paper.target if self.paper else None
        if theirs is None or len(self.targets) != 1:
            return False
        (ours,) = self.targets
        return ours == Target(ours.value) and isclose(ours.value, theirs)

    @property
    def is_comparable(self) -> bool:
        """Whether its mean may stand beside the paper's number: same target, missed by no seed."""
        return self.has_papers_target and not self.missed

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None if they are to different targets, or a seed missed it."""
        if self.mean is None or self.paper is None or not self.is_comparable:
            return None
        return self.mean - self.paper.value


def cells(collection: Collection, metric: str = "") -> list[Cell]:
    """Return every cell of the table, by rows."""
    described = find_metric(metric or collection.metric)
    found = []
    for row in collection.row_names():
        for column, labels in collection.column_labels().items():
            runs = [run for run in collection.usable(row, column) if run.done]
            targets = targets_of(runs) if described in TO_TARGET else []
            counted = runs if len(targets) < 2 else []
            found.append(
                Cell(
                    row=row,
                    column=column,
                    values=[v for r in counted if (v := r.value(described.name)) is not None],
                    by_seed=values_by_seed(counted, described.name),
                    runs=runs,
                    targets=targets,
                    labels=labels,
                    paper=collection.paper_number(described.name, labels | {collection.rows: row}),
                    metric=described,
                )
            )
    return found


def values_by_seed(runs: Iterable[Run], metric: str) -> dict[Any, float]:
    """Return a metric per seed, the mean where a seed was run twice."""
    found: dict[Any, list[float]] = {}
    for run in runs:
        value = run.value(metric)
        if value is not None:
            found.setdefault(run.seed, []).append(value)
    return {seed: mean(values) for seed, values in found.items()}


def targets_of(runs: Iterable[Run]) -> list[Target]:
    """Return the targets of runs, smallest first."""
    found = set()
    for run in runs:
        if value := float(run.config.get("target-accuracy") or 0.0):
            found.add(Target(value, str(run.config.get("target-metric") or TARGET_METRICS[0])))
    return sorted(found)


def targets_differ(table: Iterable[Cell]) -> bool:
    """Return whether a column has numbers to different targets."""
    targets: dict[str, set[Target]] = {}
    for cell in table:
        targets.setdefault(cell.column, set()).update(cell.targets)
    return any(len(here) > 1 for here in targets.values())


def target_text(targets: Iterable[Target]) -> str:
    """Write targets, separated by commas."""
    return ", ".join(map(str, targets))


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Write a mean and its deviation."""
    if not values:
        return NONE
    text, sd = f"{mean(values):.{digits}f}", deviation(values)
    return text if sd is None else f"{text} ± {sd:.{digits}f}"


def busy_note(runs: Iterable[Run], mark: str = BUSY_MARK) -> str:
    """Return, as sentences, which seconds competing work has lengthened; empty if none."""
    runs, parts = list(runs), []
    shares = [run.cpu_share for run in runs if run.busy and run.cpu_share is not None]
    if shares:
        low, high = (f"{CPU_SHARE.in_unit(share):.0f}" for share in (min(shares), max(shares)))
        some = f"{low} %" if low == high else f"{low} to {high} %"
        parts.append(
            f"{mark}: measured while other work competed for the cores; clients had {some} of one "
            "while they computed, so these seconds are too long."
        )
    unknown = sum(run.cpu_share is None for run in runs)
    if unknown:
        noun = "run" if unknown == 1 else "runs"
        parts.append(f"Whether the machine was busy was not recorded for {unknown} {noun}.")
    return " ".join(parts)
