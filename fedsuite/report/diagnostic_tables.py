"""Diagnostics of methods as numbers: means over rounds, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report.cells import mean_and_deviation
from fedsuite.report.diagnostic_figures import COUPLINGS, group, trained
from fedsuite.report.document import ReportTable
from fedsuite.report.results import paper_cells
from fedsuite.report.statistics import mean


@dataclass(frozen=True)
class Means:
    """Means over a run, by name; ``kind`` is what the names are, ``metric`` the paper's."""

    read: Callable[[Run], Mapping[str, float]]
    kind: str
    metric: str
    title: str
    caption: str


def coefficients(run: Run) -> dict[str, float]:
    """Return TACO's mean coefficient by group, without round 1, where it is an initial value."""
    values: dict[str, list[float]] = {}
    for row in trained(run):
        if row["round"] > 1 and row.get("alpha") is not None:
            name = group(run, row["client"]).split(" (")[0]
            values.setdefault(name, []).append(row["alpha"])
    return {name: mean(values[name]) for name in sorted(values)}


def couplings(run: Run) -> dict[str, float]:
    """Return FedBaC's rank correlations with clients' accuracy, means over the second half."""
    found = {}
    for name, field in COUPLINGS.items():
        curve = run.curve(field)
        if curve:
            found[name] = mean([value for number, value in curve if number > curve[-1][0] / 2])
    return found


MEANS = {
    "taco": Means(
        coefficients,
        "group",
        "alpha",
        "TACO: mean coefficients",
        "Coefficient α, mean over a group's clients and over all rounds but the first",
    ),
    "fedbac": Means(
        couplings,
        "coupling",
        "coupling",
        "FedBaC: coupling with accuracy",
        "Rank correlation (Spearman) over clients, mean over the second half of rounds",
    ),
}


def mean_tables(collection: Collection) -> list[ReportTable]:
    """Return a table for every method in ``MEANS`` that has finished runs."""
    tables = []
    for algo, means in MEANS.items():
        runs = [run for run in collection.runs if run.done and run.config["algo"] == algo]
        found = {run.name: means.read(run) for run in runs}
        if any(found.values()):
            tables.append(_table(collection, means, runs, found))
    return tables


def _table(
    collection: Collection,
    means: Means,
    runs: Sequence[Run],
    found: Mapping[str, Mapping[str, float]],
) -> ReportTable:
    names = list(dict.fromkeys(name for values in found.values() for name in values))
    here = set(map(collection.column, runs))
    columns = {name: labels for name, labels in collection.column_labels().items() if name in here}
    papers = {
        (name, column): collection.paper_number(means.metric, labels | {means.kind: name})
        for name in names
        for column, labels in columns.items()
    }
    in_paper = {column for (_, column), number in papers.items() if number}
    headings = [collection.rows, means.kind]
    for column in columns:
        headings += [column, *(["paper", "difference"] if column in in_paper else [])]
    lines = []
    for row in dict.fromkeys(map(collection.row, runs)):
        in_row = [run for run in runs if collection.row(run) == row]
        for name in names:
            line = [row, name]
            for column in columns:
                of_runs = [found[run.name] for run in in_row if collection.column(run) == column]
                values = [numbers[name] for numbers in of_runs if name in numbers]
                line.append(mean_and_deviation(values))
                if column in in_paper:
                    paper, ours = papers[name, column], mean(values) if values else None
                    line += paper_cells(paper, ours, 2)
            lines.append(line)
    caption = f"{means.caption}; ± standard deviation over seeds."
    return ReportTable(headings, lines, collection.tag(caption), means.title)
