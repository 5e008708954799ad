"""``fedsuite suite``."""

from __future__ import annotations

import warnings
from typing import Annotated, Literal

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import STATUSES, Gpus, RayAddress, engine_names
from fedsuite.cli.parsing import Command, positive
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
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=positive,
            help="runs at a time (default: as many as cores allow)",
            show_default=False,
        ),
    ] = None,
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
) -> int:
    """Run all experiments of a table or figure."""
    from fedsuite.api.run import IncompleteRun
    from fedsuite.api.suite import suite

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRun)  # the table says so
        return suite(
            file,
            scale=scale,
            jobs=jobs or 0,
            only=only or [],
            results_dir=results_dir,
            data_root=data_root,
            engine=engine,
            ray_address=ray_address,
            gpus=gpus,
        ).exit_status
