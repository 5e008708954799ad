"""A comparison in the terminal: curves, differences, tests, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from fedsuite.metrics import ROUND_SCORES, find_metric
from fedsuite.records.collection import Collection
from fedsuite.report.cells import NONE, mean_and_deviation
from fedsuite.report.comparison_result import Compared, Comparison
from fedsuite.report.curves import mean_curve
from fedsuite.report.significance import ALPHA, POWER, least_wilcoxon
from fedsuite.terminal.braille import NAME_LETTERS, plot_curves

MAX_CURVES = 8
LEAST_SHOWN = 0.001
INTERVAL_NOTE = (
    "The interval contains the true mean difference with 95 % confidence, if differences over "
    "seeds are normally distributed. Of 20 comparisons of equal methods, one interval is expected "
    "to exclude zero by chance."
)


def print_compared(compared: Compared, console: Console) -> None:
    """Print how methods compare."""

    def print_plain(lines: Sequence[str]) -> None:
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    print_plain(compared.notes)
    for at in compared.settings:
        console.print(f"\n[bold]{escape(at.name)}[/bold]", highlight=False)
        draw(compared.collection, at.name, console)
        if at.rows:
            console.print(_differences(compared, at.rows, at.reference))
        if any(map(_is_tested, at.rows)):
            console.print(_tests(compared, at.rows))
        print_plain(at.notes)
    for note in (INTERVAL_NOTE, *notes_on_tests(compared)):
        console.print(note, style="dim", highlight=False)


def notes_on_tests(compared: Compared) -> list[str]:
    """Return what the p-values, effects and numbers of seeds mean, and what they cannot show."""
    tested = [row for at in compared.settings for row in at.rows if _is_tested(row)]
    if not tested:
        return []
    notes = [
        "p is two-sided, by the paired t-test and by Wilcoxon's signed ranks (exact); Holm's are "
        "corrected for all p of their column, over all settings. d is the mean difference in "
        "standard deviations of the differences (Cohen's d)."
    ]
    for pairs in sorted({len(row.differences) for row in tested}):
        if (least := least_wilcoxon(pairs)) > ALPHA:
            notes.append(f"With {pairs} seeds Wilcoxon's p cannot be less than {least:g}.")
    if any(row.evidence and row.evidence.seeds for row in tested):
        notes.append(
            "Seeds for 1 point: how many a paired t-test needs to find a true difference of one "
            f"point with {100 * POWER:.0f} % power at p < {ALPHA:g}, if differences deviate as "
            "much as over these seeds; the deviation over few seeds is itself uncertain."
        )
    return notes


def _is_tested(row: Comparison) -> bool:
    return row.evidence is not None and row.evidence.wilcoxon is not None


def draw(collection: Collection, column: str, console: Console) -> None:
    """Plot the mean accuracy (of global models, else the clients' own) of methods by round."""
    for metric in ROUND_SCORES:
        series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
        for row in collection.row_names()[:MAX_CURVES]:
            usable = collection.usable(row, column)
            curves = [points for run in usable if (points := run.curve(metric.name))]
            line = mean_curve(metric, curves, [{} for _ in curves])
            if line is not None:
                series[row] = line[0], line[1]
        if series:
            names = min(NAME_LETTERS, max(map(len, series)))
            room = max(40, min(60, console.width - 12 - names))
            console.print(plot_curves(series, width=room, x_label=f"{metric.heading} by round"))
            return


def _differences(compared: Compared, rows: Sequence[Comparison], reference: str) -> Table:
    described, against = find_metric(compared.metric), f"difference from {escape(reference)}"
    headings = (compared.by, "seeds", described.heading, against, "95 % interval", "")
    table = _empty_table(headings, left=(compared.by, ""))
    digits = described.digits
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
        texts = [str(len(row.values)), mean_and_deviation(row.values, digits), gap, interval]
        table.add_row(escape(row.method), *texts, row.verdict)
    return table


def _tests(compared: Compared, rows: Sequence[Comparison]) -> Table:
    point = ["seeds for 1 point"] if find_metric(compared.metric).share else []
    headings = [compared.by, "p (t)", "Holm", "p (Wilcoxon)", "Holm", "d", *point]
    table = _empty_table(headings, left=(compared.by,))
    for row in rows:
        if row.evidence is None or not _is_tested(row):
            continue
        found = row.evidence
        p_values = (found.t, found.t_holm, found.wilcoxon, found.wilcoxon_holm)
        effect = NONE if found.effect is None else f"{found.effect:+.2f}"
        seeds = [NONE if found.seeds is None else f"{found.seeds:,}"] if point else []
        table.add_row(escape(row.method), *map(p_text, p_values), effect, *seeds)
    return table


def p_text(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return NONE
    return f"< {LEAST_SHOWN}" if p < LEAST_SHOWN else f"{p:.3f}"


def _empty_table(headings: Sequence[str], left: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        side: JustifyMethod = "left" if heading in left else "right"
        table.add_column(heading, justify=side, overflow="fold")
    return table
