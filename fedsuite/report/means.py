"""What a method itself saw, in numbers: means over rounds, beside what its paper prints of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedsuite.records.reader import Collection, Run
from fedsuite.report.curves import tag
from fedsuite.report.document import Table
from fedsuite.report.methods import COUPLINGS, group, trained
from fedsuite.report.results import spread, theirs
from fedsuite.report.spread import mean


@dataclass(frozen=True)
class Means:
    """A run's own numbers by name, what the names are of, and the metric a paper calls them by."""

    read: Callable[[Run], Mapping[str, float]]
    kind: str
    metric: str
    title: str
    caption: str


def coefficients(run: Run) -> dict[str, float]:
    """Return TACO's mean coefficient by group; those of round 1 are given, not measured."""
    values: dict[str, list[float]] = {}
    for row in trained(run):
        if row["round"] > 1 and row.get("alpha") is not None:
            name = group(run, row["client"]).split(" (")[0]
            values.setdefault(name, []).append(row["alpha"])
    return {name: mean(values[name]) for name in sorted(values)}


def couplings(run: Run) -> dict[str, float]:
    """Return FedBaC's rank correlations with clients' accuracy, means of the later half."""
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
        "Coefficient α, mean over a group's clients and over rounds from the second on",
    ),
    "fedbac": Means(
        couplings,
        "coupling",
        "coupling",
        "FedBaC: coupling with accuracy",
        "Rank correlation (Spearman) over clients, mean over the later half of rounds",
    ),
}


def own_means(collection: Collection) -> list[Table]:
    """Return a table for every method that has such means."""
    tables = []
    for algo, means in MEANS.items():
        runs = [run for run in collection.runs if run.done and run.config["algo"] == algo]
        seen = {run.name: means.read(run) for run in runs}
        if any(seen.values()):
            tables.append(_table(collection, means, runs, seen))
    return tables


def _table(
    collection: Collection,
    means: Means,
    runs: Sequence[Run],
    seen: Mapping[str, Mapping[str, float]],
) -> Table:
    names = list(dict.fromkeys(name for values in seen.values() for name in values))
    places = collection.places(runs)
    papers = {
        (name, column): collection.printed(means.metric, labels | {means.kind: name})
        for name in names
        for column, labels in places.items()
    }
    printed = {column for (_, column), number in papers.items() if number}
    headings = [collection.rows, means.kind]
    for column in places:
        headings += [column, *(["paper", "difference"] if column in printed else [])]
    lines = []
    for row in dict.fromkeys(map(collection.row, runs)):
        mine = [run for run in runs if collection.row(run) == row]
        for name in names:
            line = [row, name]
            for column in places:
                here = [seen[run.name] for run in mine if collection.column(run) == column]
                values = [found[name] for found in here if name in found]
                line.append(spread(values))
                if column in printed:
                    line += theirs(papers[name, column], mean(values) if values else None, 2)
            lines.append(line)
    caption = f"{means.caption}; ± deviation over seeds."
    return Table(headings, lines, tag(collection, caption), means.title)
