"""Results tables: mean and deviation over seeds, the paper's number and the difference."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

from fedsuite.metrics import LOWER, SUMMARY_METRICS, TO_TARGET, Metric, find_metric
from fedsuite.records.collection import Collection, PaperNumber
from fedsuite.report.document import Block, Bold, Paragraph, ReportTable
from fedsuite.report.statistics import deviation, mean

NONE = "–"
RUN_FIELDS = ("state", *(metric.name for metric in SUMMARY_METRICS))


@dataclass(frozen=True)
class Cell:
    """One method in one setting: its value for each finished seed that has one."""

    row: str
    column: str
    values: Sequence[float]
    runs: int
    labels: Mapping[str, Any]
    paper: PaperNumber | None
    metric: Metric

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper.value


def cells(collection: Collection, metric: str = "") -> list[Cell]:
    """Return every cell of the table, by rows."""
    metric = metric or collection.metric
    found = []
    for row in collection.row_names():
        for column, labels in collection.column_labels().items():
            runs = [run for run in collection.usable(row, column) if run.done]
            values = [v for run in runs if (v := run.value(metric)) is not None]
            paper = collection.paper_number(metric, labels | {collection.rows: row})
            found.append(Cell(row, column, values, len(runs), labels, paper, find_metric(metric)))
    return found


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Write a mean and its deviation."""
    if not values:
        return NONE
    text, sd = f"{mean(values):.{digits}f}", deviation(values)
    return text if sd is None else f"{text} ± {sd:.{digits}f}"


def results_tables(collection: Collection) -> list[Block]:
    """Return a table of the metric, and of each further one that a finished run has.

    Time and rounds to target have a section of their own; here they are shown only beside the
    paper's.
    """
    blocks = [results_table(collection, collection.metric, collection.better)]
    for metric, better in collection.also.items():
        in_paper = any(cell.paper for cell in cells(collection, metric))
        if in_paper or find_metric(metric) not in TO_TARGET:
            blocks.append(results_table(collection, metric, better))
    tables = [block for block in blocks if isinstance(block, ReportTable)]
    if len(tables) == 1:
        return [replace(tables[0], title="")]
    return [*tables] or [blocks[0]]


def results_table(collection: Collection, metric: str, better: str) -> ReportTable | Paragraph:
    """Return the table of a metric, or a sentence if no finished run has it."""
    table = cells(collection, metric)
    if not any(cell.values for cell in table):
        return Paragraph(f"No finished run has a value of {find_metric(metric).title} yet.")
    columns, rows = collection.column_names(), collection.row_names()
    in_paper = {cell.column for cell in table if cell.paper}
    by_place = {(cell.row, cell.column): cell for cell in table}
    headings = [collection.rows]
    for column in columns:
        headings += [column, *(["paper", "difference"] if column in in_paper else [])]
    best = {column: _best(better, [c for c in table if c.column == column]) for column in columns}
    most = max(len(cell.values) for cell in table)
    lines = []
    for row in rows:
        line = [row]
        for column in columns:
            cell = by_place[row, column]
            text = _our_cell(cell, most)
            is_best = len(rows) > 1 and cell.values and cell.mean == best[column]
            line.append(Bold(text) if is_best else text)
            if column in in_paper:
                line += paper_cells(cell.paper, cell.mean, cell.metric.digits)
        lines.append(line)
    heading = find_metric(metric).heading
    title = heading[:1].upper() + heading[1:]
    return ReportTable(headings, lines, _caption(collection, table, better), title)


def _best(better: str, column: Sequence[Cell]) -> float | None:
    means = [cell.mean for cell in column if cell.mean is not None and not isnan(cell.mean)]
    return (min if better == LOWER else max)(means, default=None)


def _our_cell(cell: Cell, most: int) -> str:
    if not cell.values:
        missed = cell.runs and cell.metric in TO_TARGET
        return f"none of {cell.runs}" if missed else NONE
    few = len(cell.values) < most or len(cell.values) < cell.runs
    text = mean_and_deviation(cell.values, cell.metric.digits)
    return text + (f" ({len(cell.values)} of {max(cell.runs, most)})" if few else "")


def paper_cells(paper: PaperNumber | None, ours: float | None, digits: int) -> list[str]:
    """Write a paper's number, and ours minus the paper's."""
    if paper is None:
        return [NONE, NONE]
    std = f" ± {paper.std:.{digits}f}" if paper.std is not None else ""
    difference = NONE if ours is None else f"{ours - paper.value:+.{digits}f}"
    return [f"{paper.value:.{digits}f}{std}", difference]


def _caption(collection: Collection, table: Sequence[Cell], better: str) -> str:
    most = max(len(cell.values) for cell in table)
    seeds = f"mean ± sample standard deviation over {most} seeds" if most > 1 else "one seed"
    parts = [f"{table[0].metric.heading}, {seeds}; {better} is better, best in bold."]
    if any(0 < len(c.values) < max(most, c.runs) for c in table):
        parts.append("“(1 of 2)” is the number of seeds in a cell.")
    sources = dict.fromkeys(c.paper.source for c in table if c.paper and c.paper.source)
    if any(cell.paper for cell in table):
        parts.append(f"Paper: {'; '.join(sources)}. Difference: ours minus the paper's.")
    if collection.small:
        parts.append("Small scale: not directly comparable with the paper.")
    return " ".join(parts)


def results_csv(collection: Collection) -> str:
    """Return the tables as CSV, a line per cell."""
    names = [collection.rows, *collection.columns]
    head = [*names, "metric", "scale", "seeds", "mean", "std", "paper", "paper_std", "difference"]
    lines: list[list[Any]] = [[*head, "source"]]
    for cell in (c for m in (collection.metric, *collection.also) for c in cells(collection, m)):
        labels = {**cell.labels, collection.rows: cell.row}
        paper = cell.paper
        lines.append(
            [
                *(labels.get(name, "") for name in names),
                cell.metric.heading,
                collection.scale,
                len(cell.values),
                _number(cell.mean),
                _number(deviation(cell.values)),
                _number(paper.value if paper else None),
                _number(paper.std if paper else None),
                _number(cell.difference),
                paper.source if paper else "",
            ]
        )
    return write_csv(lines)


def runs_csv(collection: Collection) -> str:
    """Return every run with its metrics as recorded (shares as fractions) as CSV."""
    names = list(dict.fromkeys(key for run in collection.runs for key in run.labels))
    lines: list[list[Any]] = [["run", *names, "scale", *RUN_FIELDS]]
    for run in collection.runs:
        fields = {**run.summary, "state": run.state}
        labels = [run.labels.get(name, "") for name in names]
        lines.append([run.name, *labels, collection.scale, *(fields.get(f) for f in RUN_FIELDS)])
    return write_csv(lines)


def write_csv(lines: Sequence[Sequence[Any]]) -> str:
    """Return lines as CSV."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(lines)
    return target.getvalue()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"
