"""The results tables of a report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedsuite.records.collection import Collection
from fedsuite.report.document import Bold, ReportTable
from fedsuite.report.results import BESIDE, results_tables
from fedsuite.terminal.console import UNBOUNDED


def print_results(collection: Collection, console: Console) -> None:
    """Print means and deviations with the paper's numbers; nothing if no run has a value yet."""
    for block in results_tables(collection):
        if isinstance(block, ReportTable):
            title = block.title or collection.tag(collection.title)
            console.print(f"\n{title}", highlight=False, markup=False, soft_wrap=True)
            for table in _tables(block, console):
                console.print(table, highlight=False)
            console.print(block.caption, highlight=False, markup=False)


def _tables(block: ReportTable, console: Console) -> list[Table]:
    """Return a table, or several with the same rows if its columns do not fit side by side."""
    unfolded = console.options.update_width(UNBOUNDED)
    tables, shown = list[Table](), list[int]()
    for group in _groups(block.headings):
        wider = _table(block, [*shown, *group])
        if shown and Measurement.get(console, unfolded, wider).maximum > console.width:
            tables.append(_table(block, shown))
            shown = []
        shown += group
    return [*tables, _table(block, shown)]


def _groups(headings: Sequence[str]) -> list[list[int]]:
    """Return which columns stay together: a setting's, with the paper's number beside it."""
    groups: list[list[int]] = []
    for index, heading in enumerate(headings[1:], 1):
        if heading in BESIDE and groups:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _table(block: ReportTable, columns: Sequence[int]) -> Table:
    table, shown = Table(box=None, padding=(0, 2, 0, 0)), [0, *columns]
    for index in shown:
        side: JustifyMethod = "left" if block.left_aligned[index] else "right"
        table.add_column(Text(block.headings[index]), justify=side, overflow="fold")
    for row in block.rows:
        table.add_row(*(_cell(row[index]) for index in shown))
    return table


def _cell(text: str) -> Text:
    return Text(text, "bold" if isinstance(text, Bold) else "")
