"""The commands that look at runs: report, compare, watch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError


def add_view_commands(commands: Any) -> None:
    """Add them to the command line."""
    report = commands.add_parser("report", help="make a page of a run, a suite or a folder of runs")
    report.add_argument("name", metavar="RUN|SUITE|FOLDER", help="name of a run, or a folder")
    report.add_argument("-o", "--output", default="report", help="folder (default: report)")
    _add_results(report)
    report.set_defaults(do=_report)

    compare = commands.add_parser("compare", help="see whether a gain is more than noise")
    compare.add_argument("names", metavar="RUN", nargs="+", help="runs, or folders of runs")
    compare.add_argument("--metric", default="", help="field of summary.json (final_accuracy)")
    compare.add_argument(
        "--against", default="", metavar="METHOD", help="the reference (default: fedavg, or first)"
    )
    _add_results(compare)
    compare.set_defaults(do=_compare)

    watch = commands.add_parser("watch", help="follow a run that goes on elsewhere")
    watch.add_argument("name", metavar="RUN", help="name of a run, or its folder")
    watch.add_argument("--once", action="store_true", help="print how it stands and end")
    _add_results(watch)
    watch.set_defaults(do=_watch)


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results-dir", default="runs", help="where runs are (default: runs)")


def _report(arguments: argparse.Namespace) -> None:
    from fedsuite.report.build import make_report

    if Path(arguments.output).exists() and not Path(arguments.output).is_dir():
        raise UserError(f"-o {arguments.output} is a file. Give a folder for the report.")
    page = make_report(arguments.name, Path(arguments.output), arguments.results_dir)
    print(f"{page} (report.md, results.csv, runs.csv and figures/ are beside it)")


def _compare(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from fedsuite.report.compare import compare

    where, console = arguments.results_dir, Console()
    compare(arguments.names, where, console, arguments.metric, arguments.against)


def _watch(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from fedsuite.records.folder import SuiteFolder, find_run
    from fedsuite.terminal.watch import watch

    for folder in (Path(arguments.name), Path(arguments.results_dir) / arguments.name):
        if SuiteFolder(folder).exists:
            raise UserError(f"{folder} is a suite. Watch one of its runs: {folder}/RUN.")
    return watch(find_run(arguments.name, arguments.results_dir), Console(), arguments.once)
