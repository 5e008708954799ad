"""``fedsuite suite``."""

from __future__ import annotations

import json
import warnings
from typing import Annotated, Literal

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import (
    STATUSES,
    DryRun,
    Gpus,
    Jobs,
    RayAddress,
    Yes,
    confirm_long,
    engine_names,
)
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError
from fedsuite.engines.table import DEFAULT_IN_SUITES
from fedsuite.records.folder import DEFAULT_RESULTS

commands = typer.Typer()


@commands.command(cls=Command, epilog=STATUSES)
def suite(
    file: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="suite, see `fedsuite list suites`, or a file of your own",
            autocompletion=completion.suites,
        ),
    ],
    scale: Annotated[
        Literal["paper", "small"],
        typer.Option(
            help="the paper's scale, or the file's small one (default: paper)", show_default=False
        ),
    ] = "paper",
    jobs: Jobs = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE...",
            help="only runs with these labels, e.g. algo=taco 'dataset=CIFAR*'",
            show_default=False,
        ),
    ] = None,
    results_dir: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help=f"folder of suites (default: {DEFAULT_RESULTS})",
            show_default=False,
        ),
    ] = DEFAULT_RESULTS,
    data_root: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="folder of hub-style parquet datasets", show_default=False
        ),
    ] = "",
    engine: Annotated[
        str,
        typer.Option(
            click_type=engine_names,
            help=f"engine of the runs (default: {DEFAULT_IN_SUITES})",
            show_default=False,
        ),
    ] = DEFAULT_IN_SUITES,
    ray_address: RayAddress = "",
    gpus: Gpus = 0.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="print runs and table as JSON at the end, nothing else",
            show_default=False,
        ),
    ] = False,
) -> int:
    """Run all experiments of a table or figure."""
    from fedsuite.api.run import IncompleteRun
    from fedsuite.api.suite import suite

    if as_json and dry_run:
        raise UserError("--json prints the results of runs, and --dry-run starts none: choose one.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRun)  # the table says so
        runs = suite(
            file,
            scale=scale,
            jobs=jobs or 0,
            only=only or [],
            results_dir=results_dir,
            data_root=data_root,
            engine=engine,
            ray_address=ray_address,
            gpus=gpus,
            progress=not as_json,
            dry_run=dry_run,
            confirm=None if yes else confirm_long,
        )
    if as_json:
        print(json.dumps(runs.document(), indent=2))
    return runs.exit_status
