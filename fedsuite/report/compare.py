"""Is a gain more than noise? Methods side by side, paired by seed and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsuite.core.settings import UserError, suggest
from fedsuite.records.reader import FOLLOWS_ALGO, Collection, Run, lay_out, open_collection
from fedsuite.report.curves import mean_curve
from fedsuite.report.results import NONE, is_share, spread, unit, value
from fedsuite.report.spread import Difference, mean, paired_difference
from fedsuite.terminal.braille import NAME_LETTERS, lines_plot

LOW_IS_GOOD = ("loss", "seconds", "rounds_to_target", "bytes", "fpr", "smoothness", "failed")
BASELINE = "fedavg"
MAX_CURVES = 8


@dataclass(frozen=True)
class Comparison:
    """One method in one setting against the reference."""

    method: str
    values: Sequence[float]
    difference: Difference | None
    verdict: str


def compare(
    names: Sequence[str], results_dir: str, console: Console, metric: str = "", against: str = ""
) -> None:
    """Print how methods compare in every setting their runs share."""
    collection, left_out = gather(names, results_dir)
    metric = metric or collection.metric
    methods = collection.row_names()
    if against and against not in methods:
        raise UserError(f"There is no '{against}' among these runs, only {', '.join(methods)}.")
    scored = scored_methods(collection, metric)
    _refuse_nothing(collection, metric, scored)

    def say_plainly(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    for run in left_out:
        say_plainly(f"left out: {run.name}, {run.state}. {run.note}")
    for remark in collection.remarks:
        say_plainly(remark)
    for column, here in scored.items():
        console.print(f"\n[bold]{escape(column)}[/bold]", highlight=False)
        draw(collection, column, console)
        reference = against or (BASELINE if BASELINE in here else here[0] if here else "")
        if reference not in here:
            say_plainly(f"No finished run has {against if here else metric} here.")
        elif len(here) == 1:
            say_plainly(f"Only {reference} ran here: there is nothing to compare it with.")
        else:
            rows = compare_column(collection, column, reference, metric)
            console.print(_table(rows, reference, metric))
            for note in without(collection, column, metric):
                say_plainly(note)
            for note in unequal(collection, column, reference):
                say_plainly(note)
    console.print(
        "The interval holds the true mean difference with 95 % confidence if differences over "
        "seeds are normally distributed; of twenty comparisons of equals, one looks clear.",
        style="dim",
        highlight=False,
    )


def gather(names: Sequence[str], results_dir: str) -> tuple[Collection, list[Run]]:
    """Collect finished runs from runs and folders; return those left out beside them."""
    opened = [open_collection(name, results_dir) for name in names]
    runs = {run.folder: run for collection in opened for run in collection.runs}
    done = [run for run in runs.values() if run.done]
    left_out = [run for run in runs.values() if not run.done]
    if len(done) < 2:
        states = "; ".join(f"{run.name}: {run.state}" for run in left_out)
        raise UserError(
            f"Comparing needs two finished runs, and there is {len(done)}. "
            + (f"Not finished: {states}." if states else "Give more runs, or a folder of runs.")
        )
    if len(opened) == 1 and opened[0].of_suite:
        return replace(opened[0], runs=done), left_out
    return lay_out("compare", done), left_out


def scored_methods(collection: Collection, metric: str) -> dict[str, list[str]]:
    """Return the methods that have the metric in each setting."""
    return {
        column: [r for r in collection.row_names() if by_seed(collection, r, column, metric)]
        for column in collection.column_names()
    }


def _refuse_nothing(collection: Collection, metric: str, scored: dict[str, list[str]]) -> None:
    """End with a sentence where no setting has two methods with the metric."""
    if not any(scored.values()):
        fields = {k for run in collection.runs for k, v in run.summary.items() if is_number(v)}
        raise UserError(f"No finished run has the metric '{metric}'. {suggest(metric, fields)}")
    if all(len(here) < 2 for here in scored.values()):
        who = "; ".join(f"{', '.join(here) or 'none'} in {at}" for at, here in scored.items())
        raise UserError(
            f"No two methods ran in the same setting, so there is nothing to compare: {who}."
        )


def is_number(value: object) -> bool:
    """Whether a field of a summary can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare_column(
    collection: Collection, column: str, reference: str, metric: str
) -> list[Comparison]:
    """Compare every method with the reference in one setting."""
    scores = {row: by_seed(collection, row, column, metric) for row in collection.row_names()}
    sign = -1.0 if low_is_good(collection, metric) else 1.0
    rows = []
    for row, mine in scores.items():
        common = [seed for seed in mine if seed in scores[reference]]
        gaps = [mine[seed] - scores[reference][seed] for seed in common]
        if row == reference:
            rows.append(Comparison(row, list(mine.values()), None, "the reference"))
        elif mine:
            difference = paired_difference(gaps) if gaps else None
            rows.append(Comparison(row, list(mine.values()), difference, verdict(difference, sign)))
    return rows


def by_seed(collection: Collection, row: str, column: str, metric: str) -> dict[object, float]:
    """Return a method's score per seed, the mean where a seed was run twice."""
    found: dict[object, list[float]] = {}
    for run in collection.usable(row, column):
        score = value(run, metric)
        if score is not None:
            found.setdefault(run.seed, []).append(score)
    return {seed: mean(scores) for seed, scores in found.items()}


def low_is_good(collection: Collection, metric: str) -> bool:
    """Whether less is better: as a suite says, else by the metric's name."""
    if collection.of_suite:
        better = {**collection.also, collection.metric: collection.better}
        if metric in better:
            return better[metric] == "lower"
    return any(word in metric for word in LOW_IS_GOOD)


def verdict(difference: Difference | None, sign: float = 1.0) -> str:
    """Put a difference into words; ``sign`` is -1 where less is better."""
    if difference is None:
        return "no seed in common, nothing to pair"
    if difference.low is None:
        return "one seed in common: cannot be told from noise, run more seeds"
    if difference.low == difference.high == 0.0:
        return "the same"
    if not difference.clear:
        return "may be noise: the interval includes zero"
    return "better, beyond noise" if difference.mean * sign > 0 else "worse, beyond noise"


def unequal(collection: Collection, column: str, reference: str) -> list[str]:
    """Say in which settings that follow from the algorithm a method's runs differ."""
    notes = []
    base = collection.usable(reference, column)
    for row in collection.row_names():
        runs = collection.usable(row, column)
        for key in FOLLOWS_ALGO if runs and base else ():
            mine, theirs = runs[0].config.get(key), base[0].config.get(key)
            if mine != theirs:
                notes.append(
                    f"{row} ran with {key}={mine}, {reference} with {key}={theirs}: unless that "
                    "is wanted, set it for both."
                )
    return notes


def without(collection: Collection, column: str, metric: str) -> list[str]:
    """Say which methods have no such number, and which they have instead."""
    here = [row for row in collection.row_names() if collection.usable(row, column)]
    silent = [row for row in here if not by_seed(collection, row, column, metric)]
    if not silent:
        return []
    other = "personal_accuracy"
    known = [row for row in silent if by_seed(collection, row, column, other)]
    hint = f" --metric {other} compares them." if known and metric != other else ""
    return [f"Without {metric.replace('_', ' ')}: {', '.join(silent)}.{hint}"]


def draw(collection: Collection, column: str, console: Console) -> None:
    """Plot the mean accuracy of every method by round."""
    for field, name in (("accuracy", "accuracy"), ("personal_accuracy", "personal accuracy")):
        series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
        for row in collection.row_names()[:MAX_CURVES]:
            curves = [c for run in collection.usable(row, column) if (c := run.curve(field))]
            line = mean_curve(curves, [{} for _ in curves])
            if line is not None:
                series[row] = line[0], line[1]
        if series:
            names = min(NAME_LETTERS, max(map(len, series)))
            room = max(40, min(60, console.width - 12 - names))
            console.print(lines_plot(series, width=room, x_label=f"{name} (%) by round"))
            return


def _table(rows: Sequence[Comparison], reference: str, metric: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    headings = ("method", "seeds", unit(metric), f"less {escape(reference)}", "95 % interval", "")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("method", "") else "right")
    digits = 2 if is_share(metric) else 3
    most = max(len(row.values) for row in rows)
    for row in rows:
        gap, interval = "", ""
        if row.difference is not None:
            pairs = row.difference.pairs
            some = f" ({pairs} in common)" if pairs < most else ""
            gap = f"{row.difference.mean:+.{digits}f}{some}"
            interval = NONE
            if row.difference.low is not None and row.difference.high is not None:
                ends = (row.difference.low, row.difference.high)
                interval = " to ".join(f"{end:+.{digits}f}" for end in ends)
        texts = [str(len(row.values)), spread(row.values, digits), gap, interval]
        table.add_row(escape(row.method), *texts, row.verdict)
    return table
