"""What a person sees of a run, read from its folder alone: live progress and the final page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from fedsuite.core.files import read_document, read_lines
from fedsuite.records.writer import META, resume_command
from fedsuite.terminal.braille import line_plot

POLL_SECONDS = 0.2


def follow(folder: Path, rounds: int, alive: Callable[[float], bool], console: Console) -> None:
    """Show a run's rounds as they are recorded, until ``alive(seconds)`` says it has ended."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    shown = len(read_lines(folder / "history.jsonl"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        job = bar.add_task("starting", total=rounds, numbers="")
        running = True
        while running:
            running = alive(POLL_SECONDS)
            history = read_lines(folder / "history.jsonl")
            for count in range(shown + 1, len(history) + 1):
                last = history[count - 1]
                numbers = describe(last, seconds_left(history[:count], rounds))
                bar.update(job, description="round", completed=last["round"], numbers=numbers)
                if not console.is_terminal:
                    console.print(
                        f"round {last['round']}/{rounds}  {numbers}",
                        highlight=False,
                        soft_wrap=True,
                    )
            shown = len(history)


def describe(row: Mapping[str, Any], left: float | None) -> str:
    """Say a round in a few words."""
    parts = []
    if row.get("accuracy") is not None:
        parts.append(f"accuracy {row['accuracy']:.4f}")
    if row.get("personal_accuracy") is not None:
        parts.append(f"personal {row['personal_accuracy']:.4f}")
    if row.get("failed"):
        parts.append(f"{row['failed']} failed")
    parts.append(f"{row['wall_seconds']:.2f} s/round")
    if left is not None:
        parts.append(f"{clock(left)} left")
    if row.get("note"):
        parts.append(str(row["note"]))
    return "  ".join(parts)


def seconds_left(history: Sequence[Mapping[str, Any]], rounds: int) -> float | None:
    """Estimate the time left from the median of the last rounds."""
    recent = sorted([row["wall_seconds"] for row in history if row["round"] > 0][-9:])
    if not recent:
        return None
    return float(recent[len(recent) // 2] * (rounds - history[-1]["round"]))


def clock(seconds: float) -> str:
    """Write a duration as people read it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def show(folder: Path, console: Console) -> None:
    """Print a run's page: how it ended, its curve, its numbers, how to repeat it."""
    config = read_document(folder / "config.json")
    summary = read_document(folder / "summary.json")
    history = read_lines(folder / "history.jsonl")
    meta = config.get(META, {})
    draw_curve(history, console)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    status = summary.get("status") or _unfinished(folder, history, config)
    style = "green" if status in ("finished", "target reached") else "red"
    name, how = escape(folder.name), escape(str(status))
    table.add_row("run", f"[bold]{name}[/bold]  [{style}]{how}[/{style}]")
    for label, value in _facts(config, summary, history):
        table.add_row(label, escape(value))
    table.add_row("folder", escape(str(folder)))
    table.add_row("command", escape(meta.get("command", "")))
    table.add_row("machine", meta.get("machine", ""))
    console.print(table, soft_wrap=True)
    if summary.get("reason"):
        console.print(summary["reason"], style="red", markup=False, highlight=False)


def draw_curve(history: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Plot accuracy (global, else personal) by round."""
    for key, name in (("accuracy", "accuracy"), ("personal_accuracy", "personal accuracy")):
        rows = [row for row in history if row.get(key) is not None]
        if len(rows) > 1:
            width = max(20, min(70, console.width - 12))
            xs, ys = [row["round"] for row in rows], [row[key] for row in rows]
            label = f"{name} by round"
            console.print(line_plot(xs, ys, width=width, x_label=label), highlight=False)
            return


def _facts(
    config: Mapping[str, Any], summary: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    rows = [
        (
            "what",
            f"{config['algo']} on {config['dataset']}, {config['model']}, "
            f"{config['partition']}, {config['num-clients']} clients, seed {config['seed']}",
        ),
        ("rounds", f"{history[-1]['round'] if history else 0} of {config['num-rounds']}"),
    ]
    if summary.get("final_accuracy") is not None:
        rows.append(
            ("accuracy", f"{summary['final_accuracy']:.4f}  (best {summary['best_accuracy']:.4f})")
        )
    if summary.get("personal_accuracy") is not None:
        rows.append(
            (
                "personal",
                f"{summary['personal_accuracy']:.4f}  (clients {summary['personal_mean']:.4f}"
                f" ± {summary['personal_std']:.4f}, worst {summary['personal_worst']:.4f})",
            )
        )
    if summary.get("rounds_to_target") is not None:
        rows.append(
            (
                "target",
                f"{summary['target_accuracy']:g} after {summary['rounds_to_target']} rounds, "
                f"{summary['compute_seconds_to_target']:.1f} s of compute",
            )
        )
    if summary:
        rows.append(
            (
                "time",
                f"{clock(summary['wall_seconds'])}, clients computed "
                f"{summary['client_compute_seconds']:.1f} s",
            )
        )
        rows.append(
            (
                "moved",
                f"{_size(summary['upload_bytes'])} up, {_size(summary['download_bytes'])} down",
            )
        )
        if summary["failed_replies"]:
            rows.append(
                ("failed", f"{summary['failed_replies']} client replies, see clients.jsonl")
            )
    return rows


def _unfinished(
    folder: Path, history: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> str:
    done = history[-1]["round"] if history else 0
    return (
        f"not finished ({done} of {config['num-rounds']} rounds); if nothing is running, "
        f"`{resume_command(folder)}` goes on"
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
