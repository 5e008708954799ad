"""Follow a run in progress by its files alone, whatever engine runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedsuite.core.text import clean_line, counted
from fedsuite.metrics import find_metric
from fedsuite.records.checks import is_number
from fedsuite.records.folder import RunState
from fedsuite.records.history import seconds_left
from fedsuite.records.reader import Run, RunReader
from fedsuite.terminal.format import duration, measured
from fedsuite.terminal.show import score_plot, show, state_colour

POLL_SECONDS = 0.5
GRACE_SECONDS = 3.0
NOTES = 3
FAILURES = 5
SKIPPED = ("round", "note")


def watch(folder: Path, console: Console, once: bool = False) -> int:
    """Show a run until it ends; return its exit status, 0 while it is running."""
    reader = RunReader(folder)
    run = reader.read()
    if once:
        console.print(overview(run, console.width))
        return 0 if run.state is RunState.RUNNING else run.exit_status
    with Live(console=console, auto_refresh=False) as live:
        quiet_since = time.monotonic()
        while True:
            live.update(overview(run, console.width), refresh=True)
            if run.state is RunState.RUNNING:
                quiet_since = time.monotonic()
            elif run.summary or time.monotonic() - quiet_since > GRACE_SECONDS:
                break
            time.sleep(POLL_SECONDS)
            run = reader.read()
    if run.state is not RunState.BROKEN:
        show(run, console)
    return run.exit_status


def await_run(seek: Callable[[], Path | None], waiting: str, console: Console) -> Path:
    """Wait until a run begins; say what is waited for unless it has begun."""
    folder = seek()
    if folder is None:
        console.print(waiting, markup=False, highlight=False, soft_wrap=True)
    while folder is None:
        time.sleep(POLL_SECONDS)
        folder = seek()
    return folder


def overview(run: Run, width: int) -> RenderableType:
    """Return a summary of a run: progress, accuracy, failed clients and notes."""
    if not run.config:
        return Text(f"{run.name}: {run.state}, {run.note}")
    what = f"{run.config['algo']} on {run.config['dataset']}, {run.meta.get('engine', '?')} engine"
    state = (str(run.state), state_colour(run.state))
    title = Text.assemble((run.name, "bold"), f"  {what}  ", state)
    parts: list[RenderableType] = [title, _progress(run, run.config["num-rounds"])]
    plot = score_plot(run.history, width)
    if plot:
        parts.append(Text(plot))
    if run.history:
        parts.append(_numbers(run.history[-1]))
    parts += [Text(text, style="red") for text in _failures(run)]
    notes = [clean_line(str(row["note"])) for row in run.history if row.get("note")]
    parts += [Text(note, style="yellow") for note in notes[-NOTES:]]
    if run.note:
        parts.append(Text(run.note))
    return Group(*parts)


def _progress(run: Run, rounds: int) -> Table:
    left = seconds_left(run.history, rounds) if run.state is RunState.RUNNING else None
    line = Table.grid(padding=(0, 2, 0, 0))
    count = f"{run.last_round}/{counted(rounds, 'round')}"
    text = count + (f", {duration(left)} left" if left is not None else "")
    line.add_row(ProgressBar(total=rounds, completed=run.last_round, width=40), text)
    return line


def _numbers(row: Mapping[str, Any]) -> Table:
    """Lay the last round's numbers out in three columns."""
    table = Table.grid(padding=(0, 3, 0, 0))
    texts = [
        Text(measured(find_metric(name), value))
        for name, value in row.items()
        if name not in SKIPPED and is_number(value)
    ]
    for start in range(0, len(texts), 3):
        table.add_row(*texts[start : start + 3])
    return table


def _failures(run: Run) -> list[str]:
    """Name the clients left out of the last round, and why."""
    if not run.history or not run.history[-1].get("failed"):
        return []
    return [
        f"client {row['client']} left out ({row.get('phase', '?')}): "
        + clean_line(str(row.get("reason", "")).strip().rpartition("\n")[2])
        for row in run.clients()
        if row["round"] == run.last_round and row.get("status") == "failed"
    ][:FAILURES]
