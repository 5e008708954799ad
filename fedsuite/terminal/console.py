"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED = 10_000  # columns


def make_console() -> Console:
    """Return a console for the terminal; into a file or a pipe, lines are neither cut nor folded.

    There nobody sees where a line ends, and a path or a command that is cut is of no use.
    """
    console = Console()
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console
