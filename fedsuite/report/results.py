"""The results table: mean and deviation over seeds, the paper's number and the difference."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

from fedsuite.records.reader import Collection, PaperNumber, Run
from fedsuite.report.document import Block, Bold, Table, Text
from fedsuite.report.spread import deviation, mean

NONE = "–"
NAMES = {
    "mean_last5_accuracy": "mean accuracy of the last five rounds",
    "personal_worst": "personal accuracy of the worst client",
}
RUN_FIELDS = (
    "state rounds final_accuracy best_accuracy mean_last5_accuracy final_loss smoothness "
    "personal_accuracy personal_mean personal_std personal_worst target_accuracy rounds_to_target "
    "compute_seconds_to_target compute_seconds_per_round wall_seconds client_compute_seconds "
    "upload_bytes download_bytes failed_replies freeloader_tpr freeloader_fpr"
).split()


@dataclass(frozen=True)
class Cell:
    """One method in one setting: its value for each finished seed that has one."""

    row: str
    column: str
    values: Sequence[float]
    runs: int
    labels: Mapping[str, Any]
    paper: PaperNumber | None
    metric: str

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper.value


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, shown in per cent."""
    name = metric.split(".")[0]
    ends = ("accuracy", "_tpr", "_fpr", "smoothness")
    return name.endswith(ends) or name.startswith("personal_")


def value(run: Run, metric: str) -> float | None:
    """Return a run's metric, in per cent if it is a share; ``a.b`` is the part b of a."""
    found: Any = run.summary
    for part in metric.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, int | float):
        return None
    return 100.0 * found if is_share(metric) else float(found)


def unit(metric: str) -> str:
    """Name a metric with its unit."""
    words = NAMES.get(metric, metric.replace("_", " ").replace(".", " "))
    words = words.replace("tpr", "TPR").replace("fpr", "FPR")
    if is_share(metric):
        return f"{words} (%)" if metric != "smoothness" else f"{words} (points)"
    return words if "seconds" not in metric else f"{words} (s)"


def cells(collection: Collection, metric: str = "") -> list[Cell]:
    """Return every cell of the table, by rows."""
    metric = metric or collection.metric
    settings = collection.places(collection.runs)
    found = []
    for row in collection.row_names():
        for column in collection.column_names():
            runs = [run for run in collection.usable(row, column) if run.done]
            values = [v for run in runs if (v := value(run, metric)) is not None]
            paper = collection.printed(metric, settings[column] | {collection.rows: row})
            found.append(Cell(row, column, values, len(runs), settings[column], paper, metric))
    return found


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Write a mean and its deviation."""
    if not values:
        return NONE
    text, sd = f"{mean(values):.{digits}f}", deviation(values)
    return text if sd is None else f"{text} ± {sd:.{digits}f}"


def digits(metric: str) -> int:
    """Say how many decimals a metric is worth: a round's seconds are few, rounds are whole."""
    return {"compute_seconds_per_round": 3, "rounds_to_target": 1}.get(metric, 2)


def results_tables(collection: Collection) -> list[Block]:
    """Return a table of the metric, and of each further one that a finished run has.

    The way to the target has a section of its own, and a table here only beside the paper's.
    """
    blocks = [results_table(collection, collection.metric, collection.better)]
    for metric, better in collection.also.items():
        printed = any(cell.paper for cell in cells(collection, metric))
        if printed or not metric.endswith("_to_target"):
            blocks.append(results_table(collection, metric, better))
    tables = [block for block in blocks if isinstance(block, Table)]
    if len(tables) > 1:
        return [replace(table, title=_sentence(table.caption.split(",")[0])) for table in tables]
    return [*tables] or [blocks[0]]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def results_table(collection: Collection, metric: str, better: str) -> Table | Text:
    """Return the table of a metric, or the sentence that says why there is none."""
    table = cells(collection, metric)
    if not any(cell.values for cell in table):
        return Text(f"No finished run has a {metric.replace('_', ' ')} yet.")
    columns, rows = collection.column_names(), collection.row_names()
    printed = {cell.column for cell in table if cell.paper}
    by_place = {(cell.row, cell.column): cell for cell in table}
    headings = [collection.rows]
    for column in columns:
        headings += [column, *(["paper", "difference"] if column in printed else [])]
    best = {column: _best(better, [c for c in table if c.column == column]) for column in columns}
    most = max(len(cell.values) for cell in table)
    lines = []
    for row in rows:
        line = [row]
        for column in columns:
            cell = by_place[row, column]
            text = _ours(cell, most)
            first = len(rows) > 1 and cell.values and cell.mean == best[column]
            line.append(Bold(text) if first else text)
            if column in printed:
                line += _theirs(cell)
        lines.append(line)
    return Table(headings, lines, _caption(collection, table, better))


def _best(better: str, column: Sequence[Cell]) -> float | None:
    means = [cell.mean for cell in column if cell.mean is not None and not isnan(cell.mean)]
    return (min if better == "lower" else max)(means, default=None)


def _ours(cell: Cell, most: int) -> str:
    if not cell.values:
        missed = cell.runs and cell.metric.endswith("_to_target")
        return f"none of {cell.runs}" if missed else NONE
    few = len(cell.values) < most or len(cell.values) < cell.runs
    text = spread(cell.values, digits(cell.metric))
    return text + (f" ({len(cell.values)} of {max(cell.runs, most)})" if few else "")


def _theirs(cell: Cell) -> list[str]:
    return theirs(cell.paper, cell.mean, digits(cell.metric))


def theirs(paper: PaperNumber | None, ours: float | None, decimals: int) -> list[str]:
    """Write a paper's number, and ours less the paper's."""
    if paper is None:
        return [NONE, NONE]
    std = f" ± {paper.std:.{decimals}f}" if paper.std is not None else ""
    difference = NONE if ours is None else f"{ours - paper.value:+.{decimals}f}"
    return [f"{paper.value:.{decimals}f}{std}", difference]


def _caption(collection: Collection, table: Sequence[Cell], better: str) -> str:
    most = max(len(cell.values) for cell in table)
    seeds = f"mean ± sample standard deviation over {most} seeds" if most > 1 else "one seed"
    parts = [f"{unit(table[0].metric)}, {seeds}; {better} is better, best in bold."]
    if any(0 < len(c.values) < max(most, c.runs) for c in table):
        parts.append("“(1 of 2)” is how many seeds a cell has.")
    sources = dict.fromkeys(c.paper.source for c in table if c.paper and c.paper.source)
    if any(cell.paper for cell in table):
        parts.append(f"Paper: {'; '.join(sources)}. Difference: ours less the paper's.")
    if collection.small:
        parts.append("Small scale: not comparable with the paper as it stands.")
    return " ".join(parts)


def results_csv(collection: Collection) -> str:
    """Return the table as CSV, a line per cell."""
    names = [collection.rows, *collection.columns]
    head = [*names, "metric", "scale", "seeds", "mean", "std", "paper", "paper_std", "difference"]
    lines: list[list[Any]] = [[*head, "source"]]
    for cell in (c for m in (collection.metric, *collection.also) for c in cells(collection, m)):
        labels = {**cell.labels, collection.rows: cell.row}
        paper = cell.paper
        lines.append(
            [
                *(labels.get(name, "") for name in names),
                unit(cell.metric),
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
    """Return every run with its numbers as recorded (shares as fractions)."""
    names = list(dict.fromkeys(key for run in collection.runs for key in run.labels))
    lines: list[list[Any]] = [["run", *names, "scale", *RUN_FIELDS]]
    for run in collection.runs:
        fields = {**run.summary, "state": run.state}
        labels = [run.labels.get(name, "") for name in names]
        lines.append([run.name, *labels, collection.scale, *(fields.get(f) for f in RUN_FIELDS)])
    return write_csv(lines)


def write_csv(lines: Sequence[Sequence[Any]]) -> str:
    """Write lines as CSV."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(lines)
    return target.getvalue()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"
