"""Results tables: mean and deviation over seeds, the paper's number and the difference."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsuite.metrics import SUMMARY_METRICS, TO_TARGET, find_metric
from fedsuite.records.checks import is_number
from fedsuite.records.collection import Collection, PaperNumber
from fedsuite.records.reader import Run
from fedsuite.report.best import (
    BEST,
    TIE,
    TIE_MARK,
    explain,
    explain_against,
    marks,
    marks_against,
)
from fedsuite.report.cells import (
    BUSY_MARK,
    CPU_SHARE,
    NONE,
    TARGET,
    TARGETS_DIFFER,
    Cell,
    Target,
    busy_note,
    cells,
    mean_and_deviation,
    target_text,
    targets_differ,
)
from fedsuite.report.document import Block, Bold, Paragraph, ReportTable
from fedsuite.report.statistics import deviation

BESIDE = ("paper", "difference")  # headings of what stands beside a column of ours
RUN_FIELDS = ("state", *(metric.name for metric in SUMMARY_METRICS))
DATA_ROOT = re.compile(r"'data-root=[^']*'|data-root=\S+")  # as the shell quotes it
ORIGIN_FIELDS = (
    "command",
    "engine",
    "split_fingerprint",
    "code_fingerprint",
    "versions",
    "machine",
)
CSV_FIELDS = (
    "metric",
    "scale",
    "seeds",
    "mean",
    "std",
    "mark",
    "target",
    "cpu_share",
    "paper",
    "paper_std",
    "paper_target",
    "difference",
    "source",
)


def results_tables(collection: Collection, reference: str = "") -> list[Block]:
    """Return a table of the metric, and of each further one that a finished run has.

    Time and rounds to target have a section of their own; here they are shown only beside the
    paper's. What is better or worse than a ``reference`` is marked.
    """
    blocks = [results_table(collection, collection.metric, collection.better, reference)]
    for metric, better in collection.also.items():
        in_paper = any(cell.paper for cell in cells(collection, metric))
        if in_paper or find_metric(metric) not in TO_TARGET:
            blocks.append(results_table(collection, metric, better, reference))
    tables = [block for block in blocks if isinstance(block, ReportTable)]
    if len(tables) == 1:
        return [replace(tables[0], title="")]
    return [*tables] or [blocks[0]]


def results_table(
    collection: Collection, metric: str, better: str, reference: str = ""
) -> ReportTable | Paragraph:
    """Return the table of a metric, or a sentence if no finished run has it."""
    table = cells(collection, metric)
    if not any(cell.values for cell in table):
        return Paragraph(f"No finished run has a value of {find_metric(metric).title} yet.")
    columns, rows = collection.column_names(), collection.row_names()
    in_paper = {cell.column for cell in table if cell.paper}
    by_place = {(cell.row, cell.column): cell for cell in table}
    marked = marks_by_column(table, better)
    against = {
        name: marks_against([cell for cell in table if cell.column == name], reference, better)
        for name in columns
    }
    headings = [collection.rows]
    for column in columns:
        here = [cell for cell in table if cell.column == column]
        headings += [_heading(here), *(BESIDE if column in in_paper else ())]
    most = max(len(cell.values) for cell in table)
    lines = []
    for row in rows:
        line = [row]
        for column in columns:
            cell = by_place[row, column]
            compared = against[column].get(row, "")
            line.append(_our_cell(cell, most, marked[column].get(row, ""), compared))
            if column in in_paper:
                ours = cell.mean if cell.is_comparable else None
                number, difference = paper_cells(cell.paper, ours, cell.metric.digits)
                line += [number + _papers_target(cell), difference]
        lines.append(line)
    heading = find_metric(metric).heading
    title = heading[:1].upper() + heading[1:]
    caption = _caption(collection, table, better, marked)
    note = explain_against(against.values(), reference)
    return ReportTable(headings, lines, f"{caption} {note}".strip(), title)


def marks_by_column(table: Sequence[Cell], better: str) -> dict[str, dict[str, str]]:
    """Return for every column which rows are best or tie."""
    columns = dict.fromkeys(cell.column for cell in table)
    return {name: marks([c for c in table if c.column == name], better) for name in columns}


def _heading(column: Sequence[Cell]) -> str:
    """Name a column, with the target that its numbers depend on."""
    targets = sorted({target for cell in column for target in cell.targets})
    if not targets:
        return column[0].column
    word = "target" if len(targets) == 1 else "targets"
    return f"{column[0].column}, {word} {target_text(targets)}"


def _our_cell(cell: Cell, most: int, mark: str, compared: str) -> str:
    runs = len(cell.runs)
    if not cell.values:
        if len(cell.targets) > 1:
            return TARGETS_DIFFER
        return f"none of {runs}" if cell.missed else NONE
    few = len(cell.values) < most or len(cell.values) < runs
    text = mean_and_deviation(cell.values, cell.metric.digits) + compared
    text += f" ({len(cell.values)} of {max(runs, most)})" if few else ""
    text += (f" {BUSY_MARK}" if cell.busy else "") + (f" {TIE_MARK}" if mark == TIE else "")
    return Bold(text) if mark == BEST else text


def paper_cells(paper: PaperNumber | None, ours: float | None, digits: int) -> list[str]:
    """Write a paper's number, and ours minus the paper's; ``ours`` is None if not comparable."""
    if paper is None:
        return [NONE, NONE]
    std = f" ± {paper.std:.{digits}f}" if paper.std is not None else ""
    difference = NONE if ours is None else f"{ours - paper.value:+.{digits}f}"
    return [f"{paper.value:.{digits}f}{std}", difference]


def _papers_target(cell: Cell) -> str:
    """Return the target of the paper's number, where it is not ours."""
    if cell.paper is None or cell.has_papers_target:
        return ""
    theirs = cell.paper.target
    return f" (target {'not recorded' if theirs is None else Target(theirs)})"


def _caption(
    collection: Collection,
    table: Sequence[Cell],
    better: str,
    marked: Mapping[str, dict[str, str]],
) -> str:
    most = max(len(cell.values) for cell in table)
    seeds = max(len(cell.by_seed) for cell in table)
    over = f"{most} runs of {'one seed' if seeds == 1 else f'{seeds} seeds'}"
    over = f"{seeds} seeds" if most == seeds else over
    how = f"mean ± sample standard deviation over {over}" if most > 1 else "one seed"
    parts = [f"{table[0].metric.heading}, {how}; {better} is better."]
    if len(collection.row_names()) > 1:
        parts.append(explain(marked.values(), [len(c.by_seed) for c in table if c.values]))
    if any(0 < len(c.values) < max(most, len(c.runs)) for c in table):
        parts.append("“(1 of 2)” is the number of seeds in a cell.")
    if any(cell.missed for cell in table):
        parts.append("A method that missed the target with a seed is not compared.")
    if any(run.missing for cell in table for run in cell.runs):
        parts.append("Some of these runs lack something of their clients; see the table of runs.")
    if targets_differ(table):
        parts.append("Targets differ: numbers to different targets are not comparable.")
    if table[0].metric.is_time:
        parts.append(busy_note(run for cell in table for run in cell.runs))
    sources = dict.fromkeys(c.paper.source for c in table if c.paper and c.paper.source)
    if any(cell.paper for cell in table):
        parts.append(f"Paper: {'; '.join(sources)}. Difference: ours minus the paper's.")
    if any(cell.paper and not cell.has_papers_target for cell in table):
        parts.append("No difference is given where the paper's target is not ours.")
    if collection.small:
        parts.append("Small scale: not directly comparable with the paper.")
    return " ".join(part for part in parts if part)


def results_csv(collection: Collection) -> str:
    """Return the tables as CSV, a line per cell; shares and targets in per cent."""
    names = [collection.rows, *collection.columns]
    lines: list[list[Any]] = [[*names, *CSV_FIELDS]]
    ways = {collection.metric: collection.better, **collection.also}
    for metric in dict.fromkeys((collection.metric, *collection.also)):
        table = cells(collection, metric)
        marked = marks_by_column(table, ways[metric])
        for cell in table:
            labels = {**cell.labels, collection.rows: cell.row}
            mark = marked[cell.column].get(cell.row, "")
            fields = _csv_fields(cell, mark) | {"scale": collection.scale}
            lines.append([*(labels.get(n, "") for n in names), *(fields[f] for f in CSV_FIELDS)])
    return write_csv(lines)


def _csv_fields(cell: Cell, mark: str) -> dict[str, Any]:
    paper = cell.paper
    shares = [run.cpu_share for run in cell.runs if run.cpu_share is not None]
    least = CPU_SHARE.in_unit(min(shares)) if shares and cell.metric.is_time else None
    to_target = paper.target if paper else None
    return {
        "metric": cell.metric.heading,
        "seeds": len(cell.values),
        "mean": _number(cell.mean),
        "std": _number(deviation(cell.values)),
        "mark": mark,
        "target": "; ".join(_plain_target(target) for target in cell.targets),
        "cpu_share": _number(least),
        "paper": _number(paper.value if paper else None),
        "paper_std": _number(paper.std if paper else None),
        "paper_target": "" if to_target is None else f"{TARGET.in_unit(to_target):g}",
        "difference": _number(cell.difference),
        "source": paper.source if paper else "",
    }


def _plain_target(target: Target) -> str:
    return str(target).replace(f" {TARGET.unit}", "")


def runs_csv(collection: Collection) -> str:
    """Return every run with its metrics as recorded (shares as fractions) and origin as CSV."""
    names = list(dict.fromkeys(key for run in collection.runs for key in run.labels))
    lines: list[list[Any]] = [["run", *names, "scale", *RUN_FIELDS, *ORIGIN_FIELDS]]
    for run in collection.runs:
        fields = {**run.summary, "state": run.state, **_origin(run)}
        labels = [run.labels.get(name, "") for name in names]
        known = (fields.get(name) for name in (*RUN_FIELDS, *ORIGIN_FIELDS))
        lines.append([run.name, *labels, collection.scale, *known])
    return write_csv(lines)


def _origin(run: Run) -> dict[str, str]:
    """Return where a run's numbers come from; the folder of its data is for readers to fill in."""
    meta = run.meta
    known = {"python": meta.get("python", ""), **meta.get("versions", {})}
    return {
        "command": DATA_ROOT.sub("data-root=DIR", meta.get("command", "")),
        "engine": meta.get("engine", ""),
        "split_fingerprint": meta.get("split-fingerprint", ""),
        "code_fingerprint": run.code,
        "versions": " ".join(f"{name}={version}" for name, version in known.items() if version),
        "machine": meta.get("machine", ""),
    }


def rounds_csv(collection: Collection) -> str:
    """Return every round of every run with all its numbers as recorded as CSV.

    ``a.b`` is the part b of the metric a.
    """
    labels = list(dict.fromkeys(key for run in collection.runs for key in run.labels))
    rows = [(run, _numbers(row)) for run in collection.runs for row in run.history]
    names = list(dict.fromkeys(name for _, numbers in rows for name in numbers))
    lines: list[list[Any]] = [["run", *labels, *names]]
    for run, numbers in rows:
        known = [run.labels.get(label, "") for label in labels]
        lines.append([run.name, *known, *(numbers.get(name) for name in names)])
    return write_csv(lines)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a round by name, those of parts too."""
    found = {name: value for name, value in row.items() if is_number(value)}
    for name, parts in row.items():
        if isinstance(parts, Mapping):
            found |= {f"{name}.{part}": v for part, v in parts.items() if is_number(v)}
    return found


def write_csv(lines: Sequence[Sequence[Any]]) -> str:
    """Return lines as CSV."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(lines)
    return target.getvalue()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"
