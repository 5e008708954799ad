"""A run's results in the terminal: its curve, its numbers, how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from fedsuite.core.text import clean_lines, counted
from fedsuite.metrics import METRICS
from fedsuite.records.folder import RunState
from fedsuite.records.history import score_curve
from fedsuite.records.reader import Run
from fedsuite.terminal.braille import plot_curve
from fedsuite.terminal.format import duration, size

MIN_WIDTH, MAX_WIDTH, SCALE_WIDTH = 20, 70, 12
MAX_SHOWN = 20_000
BESIDE_ACCURACY = ("macro_f1", "balanced_accuracy", "auc")


def show(run: Run, console: Console) -> None:
    """Print a run: how it ended, its curve, its numbers, how to repeat it."""
    plot = score_plot(run.history, console.width)
    if plot:
        console.print(plot, highlight=False)
    colour = state_colour(run.state)
    rows = [("run", f"[bold]{escape(run.name)}[/bold]  [{colour}]{run.state}[/{colour}]")]
    remarks = ["" if run.summary.get("reason") else run.note, run.damage()]
    rows += [("note", f"[yellow]{escape(remark)}[/yellow]") for remark in remarks if remark]
    rows += [(label, escape(value)) for label, value in _details(run)]
    rows.append(("folder", escape(str(run.folder))))
    rows += [(key, escape(run.meta[key])) for key in ("command", "machine") if key in run.meta]
    room = max(len(label) for label, _ in rows)
    for label, value in rows:
        console.print(f"{label:{room}}  {value}", soft_wrap=True, highlight=False)
    if run.summary.get("reason"):
        reason = clean_lines(str(run.summary["reason"]), MAX_SHOWN)
        console.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)


def state_colour(state: RunState) -> str:
    """Return the colour of a run's state."""
    return "green" if state.done else "cyan" if state is RunState.RUNNING else "red"


def score_plot(history: Sequence[Mapping[str, Any]], width: int) -> str:
    """Plot the accuracy (the global model's, else the clients' own) by round; empty for one."""
    metric, points = score_curve(history) or (None, [])
    if metric is None or len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    room = max(MIN_WIDTH, min(MAX_WIDTH, width - SCALE_WIDTH))
    return plot_curve(xs, ys, width=room, x_label=f"{metric.title} by round")


def _details(run: Run) -> list[tuple[str, str]]:
    """Return the labels and texts of the table's rows."""
    config, summary = run.config, run.summary
    if not config:
        return []
    what = (
        f"{config['algo']} on {config['dataset']}, {config['model']}, {config['partition']}, "
        f"{counted(config['num-clients'], 'client')}, seed {config['seed']}"
    )
    rows = [("what", what), ("rounds", f"{run.last_round} of {config['num-rounds']}")]

    def number(name: str) -> str:
        return METRICS[name].as_recorded(summary[name])

    def has(*names: str) -> bool:
        return all(summary.get(name) is not None for name in names)

    if has("final_accuracy", "best_accuracy"):
        best = number("best_accuracy")
        rows.append(("accuracy", f"{number('final_accuracy')}  (best {best})"))
    beside = [f"{METRICS[n].title} {number(n)}" for n in BESIDE_ACCURACY if has(n)]
    if beside:
        rows.append(("", ", ".join(beside)))
    for name, score in (summary.get("other_output_accuracy") or {}).items():
        written = METRICS["other_output_accuracy"].as_recorded(score)
        rows.append(("other output", f"{written}  ({name}, which is not the saved model)"))
    if has("personal_accuracy", "personal_mean", "personal_std", "personal_worst"):
        spread = f"{number('personal_mean')} ± {number('personal_std')}"
        worst = f"worst {number('personal_worst')}"
        if has("personal_worst_tenth"):
            worst += f", worst tenth {number('personal_worst_tenth')}"
        text = f"{number('personal_accuracy')}  (clients {spread}, {worst})"
        rows.append(("personal accuracy", text))
    if has("mean_last5_personal_accuracy", "best_personal_accuracy"):
        mean, best = number("mean_last5_personal_accuracy"), number("best_personal_accuracy")
        rows.append(("over rounds", f"mean of the last 5 {mean}, best round {best}"))
    if has("target_accuracy", "rounds_to_target", "compute_seconds_to_target"):
        seconds = number("compute_seconds_to_target")
        rounds = counted(summary["rounds_to_target"], "round")
        metric = summary.get("target_metric") or "accuracy"
        text = f"{metric} {summary['target_accuracy']:g} after {rounds}, "
        rows.append(("target", f"{text}{seconds} s of compute"))
    if has("wall_seconds", "client_compute_seconds"):
        computed = duration(summary["client_compute_seconds"])
        text = f"{duration(summary['wall_seconds'])}, clients' compute time {computed}"
        rows.append(("time", text))
    if run.busy and run.cpu_share is not None:
        text = f"clients had {100 * run.cpu_share:.0f} % of a core: compute time is too long"
        rows.append(("busy machine", text))
    if has("upload_bytes", "download_bytes"):
        text = f"{size(summary['upload_bytes'])} up, {size(summary['download_bytes'])} down"
        rows.append(("communication", text))
    if summary.get("failed_replies"):
        where = run.files.clients_file.name
        count = counted(summary["failed_replies"], "client update")
        rows.append(("missing", f"{count}, see {where}"))
    if run.expulsions:
        rows.append(("expelled", run.expulsions))
    return rows
