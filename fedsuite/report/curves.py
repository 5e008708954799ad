"""Accuracy by round and by compute time: means over seeds, with a band of their deviation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set

from fedsuite.metrics import METRICS, ROUND_SCORES, Metric
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report import drawing
from fedsuite.report.cells import busy_note
from fedsuite.report.document import Block, Paragraph, Picture, slug
from fedsuite.report.method_styles import styles_for
from fedsuite.report.statistics import deviation, mean

UNFINISHED = " (not finished)"


def by_round(collection: Collection) -> list[Block]:
    """Draw accuracy by round for every setting."""
    return _accuracy(collection, "round", "round", lambda run: {})


def by_seconds(collection: Collection) -> list[Block]:
    """Draw accuracy by compute time for every setting."""
    blocks = _accuracy(collection, "seconds", METRICS["compute_seconds"].heading, seconds_so_far)
    if not any(isinstance(block, Picture) for block in blocks):
        return blocks
    note = "The compute time of a round is its slowest client's."
    busy = [run for run in collection.runs if run.busy]
    some = f"{len(busy)} of {len(collection.runs)} runs"
    return [Paragraph(" ".join(filter(None, [note, busy_note(busy, some)]))), *blocks]


def _accuracy(
    collection: Collection, kind: str, x_label: str, clock: Callable[[Run], Mapping[int, float]]
) -> list[Block]:
    blocks: list[Block] = []
    for metric in ROUND_SCORES:
        field, y_label = metric.name, metric.heading
        for column in collection.column_names():
            series, seeds = {}, set()
            for row in collection.row_names():
                runs = [run for run in collection.usable(row, column) if run.curve(field)]
                curves = [run.curve(field) for run in runs]
                line = mean_curve(metric, curves, [clock(run) for run in runs])
                if line is not None:
                    name = row if all(run.done for run in runs) else row + UNFINISHED
                    series[name] = line
                    seeds.add(len(runs))
            if series:
                styles = styles_for(name.removesuffix(UNFINISHED) for name in series)
                styles |= {n: styles[n.removesuffix(UNFINISHED)] for n in series}
                figure = drawing.lines(collection.tag(column), x_label, y_label, series, styles)
                ends = ", ".join(f"{name} {line[1][-1]:.1f}" for name, line in series.items())
                alt = f"{column}: {y_label} by {x_label}. At the end: {ends}."
                name = slug(field, kind, column)
                blocks.append(Picture(name, alt, figure, _caption(seeds)))
    return blocks or [Paragraph("No run has recorded accuracies yet.")]


def _caption(counts: Set[int]) -> str:
    """Say over how many runs curves are means, and what their bands are."""
    least, most = min(counts), max(counts)
    if most == 1:
        return "One seed."
    over = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    return f"Lines: mean over {over}. Bands: ± one sample standard deviation."


def mean_curve(
    metric: Metric,
    curves: Sequence[Sequence[tuple[int, float]]],
    clocks: Sequence[Mapping[int, float]],
) -> drawing.Line | None:
    """Average curves of a metric over the rounds that all have, in its unit, with a deviation band.

    ``clocks`` give the seconds at each round of a curve; x is their mean, or the round without.
    """
    if not curves:
        return None
    tables = [dict(curve) for curve in curves]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    if not rounds:
        return None
    values = [[metric.in_unit(table[r]) for table in tables] for r in rounds]
    ys = [mean(v) for v in values]
    xs = [mean([clock.get(r, r) for clock in clocks]) for r in rounds]
    if len(curves) < 2:
        return xs, ys, None, None
    half = [deviation(v) or 0.0 for v in values]
    low = [y - h for y, h in zip(ys, half, strict=True)]
    return xs, ys, low, [y + h for y, h in zip(ys, half, strict=True)]


def seconds_so_far(run: Run) -> dict[int, float]:
    """Return the compute time up to every round."""
    seconds = itertools.accumulate(row.get("compute_seconds") or 0.0 for row in run.history)
    return {row["round"]: total for row, total in zip(run.history, seconds, strict=True)}
