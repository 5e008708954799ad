"""``fedsuite run`` and ``fedsuite resume``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import (
    STATUSES,
    Files,
    Gpus,
    Nodes,
    RayAddress,
    ResultsDir,
    ResumeEngine,
    RunEngine,
    RunName,
    Settings,
    SuperLink,
)
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError, shown
from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from fedsuite.api.run import Run

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
        typer.Option(metavar="NAME", help="name of the run and of its folder", show_default=False),
    ] = "",
) -> int:
    """Run one experiment."""
    from fedsuite.api.start import run

    return _show(
        lambda: run(
            algo,
            settings=read_pairs(settings or []),
            files=file or [],
            name=name,
            engine=engine,
            nodes=nodes or 0,
            gpus=gpus,
            ray_address=ray_address,
            superlink=superlink,
        )
    )


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
    from fedsuite.api.run import IncompleteRun

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRun)  # the results say so
        run = execute()
    if not run.machine and not run.was_done:
        run.show()
    return run.exit_status


def read_settings(files: Sequence[str], pairs: Sequence[str], here: bool = True) -> dict[str, Any]:
    """Merge TOML files and KEY=VALUE pairs.

    Paths are relative to the current directory, unless the run is not ``here``.
    """
    from fedsuite.api.start import merge_settings

    return merge_settings(files, read_pairs(pairs), here)


def read_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE pairs, of which the later ones win."""
    values = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(
                f"'{shown(pair)}' is not a setting. Write KEY=VALUE, e.g. num-rounds=20."
            )
        values[key.strip()] = value.strip()
    return values
