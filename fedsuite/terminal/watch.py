"""A running run seen from its files alone, whatever engine makes it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedsuite.records.reader import Run, read_run
from fedsuite.terminal.braille import line_plot
from fedsuite.terminal.progress import clock, seconds_left, show

POLL_SECONDS = 0.5
GRACE_SECONDS = 3.0
NOTES = 3
SKIPPED = ("round", "note")


def watch(folder: Path, console: Console, once: bool = False) -> int:
    """Show a run until it ends; return 0 if it ran, or still runs, well."""
    if once:
        run = read_run(folder)
        console.print(view(run, console.width))
        return 0 if run.done or run.state == "running" else 1
    with Live(console=console, auto_refresh=False) as live:
        run, quiet_since = read_run(folder), time.monotonic()
        while True:
            live.update(view(run, console.width), refresh=True)
            if run.state == "running":
                quiet_since = time.monotonic()
            elif run.summary or time.monotonic() - quiet_since > GRACE_SECONDS:
                break
            time.sleep(POLL_SECONDS)
            run = read_run(folder)
    if run.state == "broken":
        return 1
    show(folder, console)
    return 0 if run.done else 1


def view(run: Run, width: int) -> RenderableType:
    """Return a run at a glance: how far, how good, who failed, what was noted."""
    if not run.config:
        return Text(f"{run.name}: {run.state}, {run.note}")
    done, rounds = (run.history[-1]["round"] if run.history else 0), run.config["num-rounds"]
    what = f"{run.config['algo']} on {run.config['dataset']}, {run.meta.get('engine', '?')} engine"
    parts: list[RenderableType] = [
        Text.assemble((run.name, "bold"), f"  {what}  ", (run.state, _colour(run))),
        _progress(run, done, rounds),
    ]
    for field, name in (("accuracy", "accuracy"), ("personal_accuracy", "personal accuracy")):
        curve = run.curve(field)
        if len(curve) > 1:
            xs, ys = zip(*curve, strict=True)
            size = max(20, min(70, width - 12))
            parts.append(Text(line_plot(xs, ys, width=size, x_label=f"{name} by round")))
            break
    if run.history:
        parts.append(_numbers(run.history[-1]))
    parts += [Text(text, style="red") for text in _failures(run)]
    notes = [str(row["note"]) for row in run.history if row.get("note")]
    parts += [Text(note, style="yellow") for note in notes[-NOTES:]]
    if not run.done and run.note:
        parts.append(Text(run.note))
    return Group(*parts)


def _colour(run: Run) -> str:
    return "green" if run.done else "cyan" if run.state == "running" else "red"


def _progress(run: Run, done: int, rounds: int) -> Table:
    left = seconds_left(run.history, rounds) if run.history and run.state == "running" else None
    line = Table.grid(padding=(0, 2, 0, 0))
    said = f"{done}/{rounds} rounds" + (f", {clock(left)} left" if left is not None else "")
    line.add_row(ProgressBar(total=rounds, completed=done, width=40), said)
    return line


def _numbers(row: Any) -> Table:
    """Lay the last round's numbers out in three columns."""
    table = Table.grid(padding=(0, 3, 0, 0))
    words = [
        f"{key.replace('_', ' ')} {value:,.4g}"
        for key, value in row.items()
        if key not in SKIPPED and isinstance(value, int | float)
    ]
    for start in range(0, len(words), 3):
        table.add_row(*words[start : start + 3])
    return table


def _failures(run: Run) -> list[str]:
    """Name the clients left out of the last round, and why."""
    if not run.history or not run.history[-1].get("failed"):
        return []
    last = run.history[-1]["round"]
    return [
        f"client {row['client']} left out ({row['phase']}): "
        + str(row.get("reason", "")).strip().rpartition("\n")[2]
        for row in run.clients()
        if row["round"] == last and row.get("status") == "failed"
    ][:5]
