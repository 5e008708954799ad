"""``fedsuite report`` and ``fedsuite compare``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import AsJson, ResultsDir, print_json
from fedsuite.cli.parsing import Command
from fedsuite.core.settings import UserError
from fedsuite.records.folder import DEFAULT_RESULTS

commands = typer.Typer()


@commands.command(cls=Command)
def report(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN|SUITE|FOLDER",
            help="name of a run or suite, a folder, or a bundle",
            autocompletion=completion.runs_and_suites,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="folder to write (default: report)",
            show_default=False,
        ),
    ] = "report",
    paper_numbers: Annotated[
        bool,
        typer.Option(
            "--paper-numbers",
            help="print the paper's numbers in LaTeX tables too",
            show_default=False,
        ),
    ] = False,
    against: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="reference of the marks in LaTeX tables (default: fedavg, or the first)",
            show_default=False,
        ),
    ] = "",
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Make a page, figures and LaTeX tables of a run, a suite or a folder of runs."""
    from fedsuite.report.build import make_report

    if os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"-o {output} is a file. Give a folder for the report.")
    page = make_report(
        name, Path(output), results_dir, paper_numbers=paper_numbers, against=against
    )
    beside = "report.md, tables.tex, results.csv, runs.csv, rounds.csv and figures/"
    print(f"{page} ({beside} are beside it)")


@commands.command(cls=Command)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="runs, suites or folders of runs",
            autocompletion=completion.runs_and_suites,
        ),
    ],
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="field of summary.json (default: final_accuracy, or the suite's)",
            show_default=False,
        ),
    ] = "",
    against: Annotated[
        str,
        typer.Option(
            metavar="METHOD|VALUE",
            help="reference (default: fedavg, or the first)",
            show_default=False,
        ),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help="compare the values of this setting, or of a suite's label, instead of methods",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="print the table as CSV", show_default=False)
    ] = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """Test whether a gain is more than noise, paired over seeds."""
    from fedsuite.api.compare import compare

    if as_json and as_csv:
        raise UserError("--json and --csv exclude each other. Give one of them.")
    found = compare(*names, metric=metric, against=against, by=by, results_dir=results_dir)
    if as_json:
        print_json(found.document())
    elif as_csv:
        print(found.csv(), end="")
    else:
        found.show()
