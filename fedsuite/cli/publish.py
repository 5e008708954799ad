"""``fedsuite bundle`` and ``fedsuite verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import ResultsDir, RunEngine
from fedsuite.cli.parsing import Command, positive, whole_number
from fedsuite.records.folder import DEFAULT_RESULTS

commands = typer.Typer()
Runs = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SUITE|FOLDER",
        help="name of a run or suite, a folder, or a bundle",
        autocompletion=completion.runs_and_suites,
    ),
]


@commands.command(cls=Command)
def bundle(
    name: Runs,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="file to write, .tar.zst or .tar.gz (default: the folder's name.tar.zst)",
            show_default=False,
        ),
    ] = "",
    models: Annotated[
        bool, typer.Option("--models", help="pack the models too", show_default=False)
    ] = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Pack records and report into one file, for an appendix or an archive."""
    from fedsuite.api.bundle import bundle
    from fedsuite.terminal.format import size

    path = bundle(name, output, models=models, results_dir=results_dir)
    print(f"{path} ({size(path.stat().st_size)})")


@commands.command(
    cls=Command,
    epilog="Exit status: 0 if at least the accuracies of every repeated run match, 1 if not, 2 "
    "refused.",
)
def verify(
    name: Runs,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=positive, help="runs to repeat (default: all)", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            parser=whole_number,
            help="seed of the random sample (default: 0)",
            show_default=False,
        ),
    ] = None,
    engine: RunEngine = None,
    data_root: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="folder of the data, if not where it was", show_default=False
        ),
    ] = "",
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> int:
    """Repeat finished runs and say whether bits or accuracies match the record."""
    from fedsuite.api.verify import verify

    verified = verify(
        name,
        sample=sample or 0,
        seed=seed or 0,
        engine=engine,
        data_root=data_root,
        results_dir=results_dir,
    )
    print(verified)
    return verified.exit_status
