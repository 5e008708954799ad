"""The commands that show something: ``show``, ``watch``, ``settings``."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import AsJson, ResultsDir, RunName, WholeRunName, print_json
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError, allowed, shown, spell
from fedsuite.records.folder import DEFAULT_RESULTS

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes
commands = typer.Typer()


@commands.command(cls=Command)
def show(name: RunName, as_json: AsJson = False, results_dir: ResultsDir = DEFAULT_RESULTS) -> None:
    """Show a run's results."""
    from fedsuite.api.run import load

    run = load(name, results_dir=results_dir)
    if as_json:
        print_json(run.document())
    else:
        run.show()


@commands.command(cls=Command)
def watch(
    name: WholeRunName,
    once: Annotated[
        bool, typer.Option("--once", help="print its state and exit", show_default=False)
    ] = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> int:
    """Follow a run that was started elsewhere; wait for one that has not begun."""
    from fedsuite.records.folder import LATEST, RunFolder, find_run, seek_run
    from fedsuite.records.reader import FAILED
    from fedsuite.terminal.console import make_console
    from fedsuite.terminal.watch import await_run, watch

    def seek() -> Path | None:
        _refuse_suite(name, results_dir)
        return seek_run(name, results_dir)

    _refuse_no_name(name, results_dir)
    if name == LATEST:
        name = str(find_run(name, results_dir))
    if once and seek() is None:
        print(f"fedsuite: {_not_begun(name, results_dir)}", file=sys.stderr)
        return FAILED
    console = make_console()
    try:
        folder = await_run(seek, _waiting(name, results_dir), console)
        return watch(folder, console, once)
    except KeyboardInterrupt:
        found = seek()
        again = RunFolder(found or Path(results_dir).absolute() / name).command("watch")
        state = "is not affected" if found else "has not begun"
        print(f"fedsuite: the run {state}; to watch it: `{again}`", file=sys.stderr)
        raise


def _refuse_suite(name: str, results_dir: str) -> None:
    from fedsuite.records.folder import SuiteFolder

    for folder in (Path(name), Path(results_dir) / name):
        if SuiteFolder(folder).exists:
            raise UserError(f"{folder} is a suite. Watch one of its runs: {folder}/RUN.")


def _refuse_no_name(name: str, results_dir: str) -> None:
    """Refuse to wait for what can never be a run."""
    from fedsuite.records.folder import seek_run

    path = os.fsencode(name)
    is_long = len(path) > LONGEST_PATH or max(map(len, path.split(b"/"))) > LONGEST_NAME
    is_file = os.path.isfile(name) and seek_run(name, results_dir) is None
    if not name or "\0" in name or is_long or is_file:
        hint = f" A name has at most {LONGEST_NAME} bytes." if is_long else ""
        raise UserError(f"'{shown(name)}' is not the name or folder of a run.{hint}")


def _not_begun(name: str, results_dir: str) -> str:
    where = Path(results_dir).absolute()
    return f"The run '{name}' has not begun in {where}.{_hint(name, results_dir)}"


def _waiting(name: str, results_dir: str) -> str:
    where = Path(results_dir).absolute()
    return (
        f"Waiting for the run '{name}', which has not begun in {where}; Ctrl-C ends the wait."
        f"{_hint(name, results_dir)}"
    )


def _hint(name: str, results_dir: str) -> str:
    from fedsuite.records.folder import similar_run

    near = similar_run(name, results_dir)
    return f" Did you mean '{near}'?" if near else ""


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
    from fedsuite.core import plugins
    from fedsuite.registry import ALGORITHMS, own_settings

    groups = setting_groups()
    if word in ALGORITHMS or plugins.reference_of("algo", word):
        found = groups.get(word) or own_settings(word)
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
    from rich.table import Table
    from rich.text import Text

    from fedsuite.terminal.console import make_console

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("key", "default", "allowed", "meaning"):
        table.add_column(heading, no_wrap=heading == "key", overflow="fold")
    for key, field in found.items():
        other = _other_name(key, field)
        meaning = field.metadata["help"] + (f"; {other} is the same setting" if other else "")
        cells = (key, spell(field.default), allowed(field), meaning)
        table.add_row(*(Text(cell) for cell in cells))
    make_console().print(table, highlight=False)
