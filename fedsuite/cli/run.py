"""``fedsuite run`` and ``fedsuite resume``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import (
    STATUSES,
    DryRun,
    Files,
    Gpus,
    Jobs,
    Nodes,
    RayAddress,
    ResultsDir,
    ResumeEngine,
    RunEngine,
    RunName,
    Settings,
    SuperLink,
    Yes,
    confirm_long,
)
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError, invalid, shown
from fedsuite.core.value_lists import split_values
from fedsuite.engines.table import DEFAULT_IN_SUITES
from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from fedsuite.api.run import Run

T = TypeVar("T")
commands = typer.Typer()


@commands.command(cls=Command, epilog=f"`fedsuite settings` lists all keys. {STATUSES}")
def run(
    algo: Annotated[
        str,
        typer.Argument(
            metavar="ALGO",
            help="algorithm, see `fedsuite list algorithms`; or MODULE:ATTRIBUTE of your own",
            autocompletion=completion.algorithms,
        ),
    ],
    settings: Settings = None,
    file: Files = None,
    engine: RunEngine = None,
    superlink: SuperLink = "",
    ray_address: RayAddress = "",
    nodes: Nodes = None,
    gpus: Gpus = 0.0,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="name of the run, or of the sweep, and of its folder",
            show_default=False,
        ),
    ] = "",
    jobs: Jobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Run one experiment; or a sweep: all combinations of values separated by commas.

    Write a value that has a comma itself in double quotes, inside those of the shell.
    """
    from fedsuite.api.start import estimate, run
    from fedsuite.api.suite import sweep

    options: dict[str, Any] = {"files": file or [], "name": name, "gpus": gpus}
    options |= {"ray_address": ray_address}
    algos, values = split_values("algo", algo), read_values(settings or [])
    if len(algos) > 1 or any(isinstance(value, list) for value in values.values()):
        if superlink or nodes:
            raise UserError("A sweep runs on this machine: leave --superlink and --nodes out.")
        options |= {"jobs": jobs or 0, "engine": engine or DEFAULT_IN_SUITES, "dry_run": dry_run}
        options["confirm"] = None if yes else confirm_long
        return _quietly(lambda: sweep(unlisted(algos), settings=values, **options)).exit_status
    if jobs:
        raise UserError("--jobs has no effect on one run. Leave it out.")
    options |= {"settings": values, "engine": engine, "nodes": nodes or 0, "superlink": superlink}
    if dry_run:
        estimate(algo, **options)
        return 0
    return _show(lambda: run(algo, **options))


@commands.command(cls=Command, epilog=STATUSES)
def resume(
    name: RunName,
    results_dir: ResultsDir = DEFAULT_RESULTS,
    engine: ResumeEngine = None,
    superlink: SuperLink = "",
    ray_address: RayAddress = "",
    nodes: Nodes = None,
    gpus: Gpus = 0.0,
) -> int:
    """Resume an interrupted run."""
    from fedsuite.api.start import resume

    return _show(
        lambda: resume(
            name,
            results_dir=results_dir,
            engine=engine,
            nodes=nodes or 0,
            gpus=gpus,
            ray_address=ray_address,
            superlink=superlink,
        )
    )


def _show(execute: Callable[[], Run]) -> int:
    """Execute a run and show its results, unless there was nothing to do; return the status."""
    run = _quietly(execute)
    if not run.machine and not run.was_done:
        run.show()
    return run.exit_status


def _quietly(execute: Callable[[], T]) -> T:
    """Execute runs without a warning that they are incomplete: their results say so."""
    from fedsuite.api.run import IncompleteRun

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRun)
        return execute()


def read_settings(files: Sequence[str], pairs: Sequence[str], here: bool = True) -> dict[str, Any]:
    """Merge TOML files and KEY=VALUE pairs of one value each.

    Paths are relative to the current directory, unless the run is not ``here``.
    """
    from fedsuite.api.start import merge_settings

    values = read_values(pairs)
    for key, value in values.items():
        if isinstance(value, list):
            raise invalid(key, ",".join(value), "it takes one value here.")
    return merge_settings(files, values, here)


def read_values(pairs: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE pairs, of which the later ones win; several values are a list."""
    values = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise UserError(
                f"'{shown(pair)}' is not a setting. Write KEY=VALUE, e.g. num-rounds=20."
            )
        key = key.strip()
        values[key] = unlisted(split_values(key, text.strip()))
    return values


def unlisted(values: list[str]) -> str | list[str]:
    """Return one value as it is."""
    return values if len(values) > 1 else values[0]
