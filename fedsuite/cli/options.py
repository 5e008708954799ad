"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from fedsuite.cli import completion
from fedsuite.cli.parsing import positive
from fedsuite.engines.table import DEFAULT, ENGINES

engine_names = click.Choice(tuple(ENGINES))

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="name of a run, or its folder", autocompletion=completion.runs
    ),
]
ResultsDir = Annotated[
    str,
    typer.Option(
        "--results-dir", metavar="DIR", help="folder of runs (default: runs)", show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="settings; later ones win, see `fedsuite settings`",
        autocompletion=completion.settings,
        show_default=False,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        help="TOML file of settings; may be repeated",
        show_default=False,
    ),
]
RunEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        click_type=engine_names,
        help="; ".join(f"{name}: {engine.summary}" for name, engine in ENGINES.items())
        + f" (default: {DEFAULT}; on resume: the run's)",
        show_default=False,
    ),
]
SuperLink = Annotated[
    str,
    typer.Option(
        "--superlink",
        metavar="NAME",
        help="run on deployed nodes, at this connection of Flower's config",
        show_default=False,
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        parser=positive,
        help="worker nodes (default: ray one per core, inline 1)",
        show_default=False,
    ),
]
Gpus = Annotated[
    float,
    typer.Option(
        "--gpus", metavar="SHARE", help="GPUs per node, e.g. 0.5 (engine ray)", show_default=False
    ),
]
