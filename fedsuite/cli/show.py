"""The commands that show something: ``show``, ``watch``, ``list``, ``settings``."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import ResultsDir, RunName
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError, allowed, spell
from fedsuite.records.folder import DEFAULT_RESULTS

Listed = Literal["algorithms", "datasets", "models", "partitions", "runs"]
commands = typer.Typer()


@commands.command(cls=Command)
def show(name: RunName, results_dir: ResultsDir = DEFAULT_RESULTS) -> None:
    """Show a run's results."""
    from rich.console import Console

    from fedsuite.records.folder import find_run
    from fedsuite.records.reader import read_run
    from fedsuite.terminal.show import show

    show(read_run(find_run(name, results_dir)), Console())


@commands.command(cls=Command)
def watch(
    name: RunName,
    once: Annotated[
        bool, typer.Option("--once", help="print its state and exit", show_default=False)
    ] = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> int:
    """Follow a run that was started elsewhere."""
    from rich.console import Console

    from fedsuite.records.folder import SuiteFolder, find_run
    from fedsuite.terminal.watch import watch

    for folder in (Path(name), Path(results_dir) / name):
        if SuiteFolder(folder).exists:
            raise UserError(f"{folder} is a suite. Watch one of its runs: {folder}/RUN.")
    return watch(find_run(name, results_dir), Console(), once)


@commands.command("list", cls=Command)
def list_choices(
    what: Annotated[Listed, typer.Argument(metavar="WHAT", help=", ".join(get_args(Listed)))],
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """List algorithms, datasets, models, partitions or runs."""
    from rich.console import Console
    from rich.table import Table

    choices = _choices(what, results_dir)
    if not choices:
        print(f"There are no {what} in {Path(results_dir).absolute()}.")
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for name, summary in choices:
        table.add_row(f"[bold]{name}[/bold]", summary)
    Console().print(table, highlight=False)


@commands.command("keys", cls=Command, hidden=True)
@commands.command(cls=Command)
def settings(
    word: Annotated[
        str,
        typer.Argument(
            metavar="[WORD]",
            help="an algorithm, for its settings alone; or a part of a key or its meaning",
            autocompletion=completion.algorithms,
            show_default=False,
        ),
    ] = "",
) -> None:
    """Explain settings: key, default, allowed values, meaning."""
    from fedsuite.config import setting_groups
    from fedsuite.registry import ALGORITHMS

    groups = setting_groups()
    if word in ALGORITHMS:
        found = groups[word]
        if not found:
            print(f"{word} has no settings of its own; `fedsuite settings` lists those all share.")
            return
    else:
        fields = {key: field for group in groups.values() for key, field in group.items()}
        found = {key: field for key, field in fields.items() if _matches(word, key, field)}
        if not found:
            raise UserError(_nothing_found(word, fields))
    _print_settings(found)


def _matches(word: str, key: str, field: dataclasses.Field[Any]) -> bool:
    starts = re.search(rf"\b{re.escape(word)}", field.metadata["help"], re.IGNORECASE)
    return word.lower() in key or word.lower() in _other_name(key, field) or starts is not None


def _other_name(key: str, field: dataclasses.Field[Any]) -> str:
    """Return the second key of a setting that has one: ``fedprox.mu`` of ``fedprox.zeta``."""
    alias = field.metadata["alias"]
    return f"{key.rpartition('.')[0]}.{alias}".lstrip(".") if alias else ""


def _nothing_found(word: str, keys: Iterable[str]) -> str:
    last = {key.rpartition(".")[2]: key for key in keys}
    near = difflib.get_close_matches(word.rpartition(".")[2], last, n=1)
    hint = f"Did you mean '{last[near[0]]}'? " if near else ""
    return f"No setting has '{word}' in its key or meaning. {hint}`fedsuite settings` lists all."


def _print_settings(found: Mapping[str, dataclasses.Field[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("key", "default", "allowed", "meaning"):
        table.add_column(heading, no_wrap=heading == "key", overflow="fold")
    for key, field in found.items():
        other = _other_name(key, field)
        meaning = field.metadata["help"] + (f"; {other} is the same setting" if other else "")
        cells = (key, spell(field.default), allowed(field), meaning)
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table, highlight=False)


def _choices(what: Listed, results_dir: str) -> list[tuple[str, str]]:
    if what == "algorithms":
        from fedsuite.registry import ALGORITHMS

        return [(name, entry.summary) for name, entry in sorted(ALGORITHMS.items())]
    if what == "datasets":
        from tasks.datasets import DATASETS

        return [(n, f"{s.summary} (model {s.default_model})") for n, s in DATASETS.items()]
    if what == "models":
        from tasks.models import MODELS

        return [(n, f"{s.summary} ({', '.join(s.kinds)})") for n, s in MODELS.items()]
    if what == "runs":
        return _runs(results_dir)
    from tasks.partitions import PARTITIONS

    return [(name, scheme.summary) for name, scheme in PARTITIONS.items()]


def _runs(results_dir: str) -> list[tuple[str, str]]:
    from rich.markup import escape

    from fedsuite.records.reader import list_runs

    return [(escape(run.name), escape(run.description)) for run in list_runs(Path(results_dir))]
