"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED = 10_000  # columns


def make_console(quiet: bool = False) -> Console:
    """Return a console for the terminal; into a file or a pipe, lines are neither cut nor folded.

    There nobody sees where a line ends, and a path or a command that is cut is of no use. A
    notebook is written to like a file.
    """
    terminal = False if is_notebook() else None
    console = Console(quiet=quiet, force_jupyter=False, force_terminal=terminal)
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console


def is_notebook() -> bool:
    """Return whether this process computes the cells of a notebook."""
    return Console().is_jupyter
