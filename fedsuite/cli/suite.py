"""``fedsuite suite``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsuite.cli.options import STATUSES, Gpus, RayAddress, engine_names
from fedsuite.cli.parsing import Command, positive
from fedsuite.core.files import absolute_path
from fedsuite.core.settings import UserError
from fedsuite.engines.table import DEFAULT_IN_SUITES
from fedsuite.records.folder import DEFAULT_RESULTS

commands = typer.Typer()


@commands.command(cls=Command, epilog=STATUSES)
def suite(
    file: Annotated[str, typer.Argument(metavar="FILE", help="suite file, see sim_configs/suites")],
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
    from fedsuite.suites.definition import read_suite
    from fedsuite.suites.runner import Where, run_suite
    from fedsuite.terminal.console import make_console

    if ray_address and engine != DEFAULT_IN_SUITES:
        raise UserError(
            f"--ray-address computes each run on one worker, with the engine {DEFAULT_IN_SUITES}. "
            "Leave --engine out."
        )
    if gpus and not ray_address:
        raise UserError("--gpus has no effect without --ray-address. Leave it out.")
    where = Where(jobs or 0, engine, ray_address, gpus)
    return run_suite(
        read_suite(Path(file), scale),
        where=where,
        only=only or [],
        results=absolute_path(results_dir),
        data_root=data_root,
        console=make_console(),
    )
