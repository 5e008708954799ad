"""Arguments and options that several commands have."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import click
import typer
from typer.models import ArgumentInfo, OptionInfo

from fedsuite.cli import completion
from fedsuite.cli.parsing import node_count, positive, share
from fedsuite.core.settings import UserError
from fedsuite.engines.table import AUTO, AUTO_SUMMARY, DEFAULT, ENGINES
from fedsuite.records.folder import DEFAULT_RESULTS

STATUSES = (
    "Exit status: 0 done, 1 failed, 2 refused, 3 done but client updates are missing (or scores, "
    "or models), 130 or 143 interrupted by Ctrl-C or SIGTERM."
)
LONG_SECONDS = 3600.0
engine_names = click.Choice(tuple(ENGINES))
_parallel = ", ".join(name for name, engine in ENGINES.items() if engine.parallel)


def _engine_option(default: str) -> OptionInfo:
    lines = {AUTO: AUTO_SUMMARY} | {name: engine.summary for name, engine in ENGINES.items()}
    summaries = "; ".join(f"{name}: {line}" for name, line in lines.items())
    return typer.Option(
        "--engine",
        click_type=click.Choice(tuple(lines)),
        help=f"{summaries} (default: {default})",
        show_default=False,
    )


def _run_argument(names: str) -> ArgumentInfo:
    return typer.Argument(metavar="RUN", help=names, autocompletion=completion.runs)


RunName = Annotated[
    str, _run_argument("name of a run, or a beginning that no other has; its folder; or latest")
]
# A run to come may have a name with which that of another begins.
WholeRunName = Annotated[str, _run_argument("whole name of a run, its folder, or latest")]
ResultsDir = Annotated[
    str,
    typer.Option(
        "--results-dir",
        metavar="DIR",
        help=f"folder of runs (default: {DEFAULT_RESULTS})",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts", show_default=False)]
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
        help="TOML file of settings, or a name of `fedsuite list configs`; may be repeated",
        show_default=False,
    ),
]
RunEngine = Annotated[str | None, _engine_option(DEFAULT)]
ResumeEngine = Annotated[str | None, _engine_option("the one that the run started on")]
SuperLink = Annotated[
    str,
    typer.Option(
        "--superlink",
        metavar="NAME",
        help="run on deployed nodes, at this connection of Flower's config",
        show_default=False,
    ),
]
RayAddress = Annotated[
    str,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT|auto",
        help="compute on an existing Ray cluster, of which this machine is a part",
        show_default=False,
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        parser=node_count,
        help=f"number of worker nodes (default: with {_parallel} one per core of the machine "
        "or of the cluster, otherwise 1)",
        show_default=False,
    ),
]
Gpus = Annotated[
    float,
    typer.Option(
        "--gpus",
        metavar="SHARE",
        parser=share,
        help="GPUs per node, e.g. 0.5, if nodes compute in parallel",
        show_default=False,
    ),
]

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        parser=positive,
        help="number of runs at a time (default: as many as cores allow)",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="list the runs with estimates of time and memory, and start none",
        show_default=False,
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="start several runs without asking, even if they take over an hour",
        show_default=False,
    ),
]


def print_json(document: Any) -> None:
    """Print a document as JSON; numbers that JSON does not have, such as NaN, are null."""
    print(json.dumps(_finite(document), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def confirm_long(seconds: float, text: str) -> None:
    """Ask whether to start runs that take over an hour; refuse if there is nobody to ask."""
    if seconds <= LONG_SECONDS:
        return
    if not sys.stdin.isatty():
        raise UserError(f"This takes {text}, and there is no terminal to ask. Add --yes to start.")
    print(f"This takes {text}. Start? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was started.")
