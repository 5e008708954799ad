"""A run's rounds in the terminal, or in a notebook, while they are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from fedsuite.core.text import clean_line
from fedsuite.records.folder import RunFolder
from fedsuite.records.history import LiveHistory, describe_round, seconds_left
from fedsuite.terminal.console import is_notebook
from fedsuite.terminal.format import duration

POLL_SECONDS = 0.2


def follow(folder: Path, rounds: int, alive: Callable[[float], bool], console: Console) -> None:
    """Show a run's rounds as they are recorded, until ``alive(seconds)`` returns False.

    In a terminal and in a notebook each round replaces the one before it, unless something is
    noted of it.
    """
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    history = LiveHistory(RunFolder(folder).history_file)
    history.update()
    cell = NotebookLine() if is_notebook() and not console.quiet else None
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        job = bar.add_task("starting", total=rounds, numbers="")
        running = True
        while running:
            running = alive(POLL_SECONDS)
            new = history.update()
            for count, row in enumerate(new, len(history.rows) - len(new) + 1):
                numbers = progress_line(row, seconds_left(history.rows[:count], rounds))
                bar.update(job, description="round", completed=row["round"], numbers=numbers)
                line = f"round {row['round']}/{rounds}  {numbers}"
                if cell is not None:
                    cell.show(line)
                if row.get("note") or not (console.is_terminal or cell):
                    console.print(line, highlight=False, soft_wrap=True, markup=False)


class NotebookLine:
    """A line below a notebook's cell, which the next one replaces."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Show a line instead of the one before."""
        content = {"text/plain": text}
        if self._handle is not None:
            self._handle.update(content, raw=True)
            return
        display = import_module("IPython.display").display  # every notebook has it
        self._handle = display(content, raw=True, display_id=True)


def progress_line(row: Mapping[str, Any], left: float | None) -> str:
    """Describe a round in a line, with the time left and what was noted of it."""
    parts = describe_round(row)
    if left is not None:
        parts.append(f"{duration(left)} left")
    if row.get("note"):
        parts.append(clean_line(str(row["note"])))
    return "  ".join(parts)
