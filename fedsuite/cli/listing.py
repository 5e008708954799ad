"""``fedsuite list``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from fedsuite.cli.options import AsJson, ResultsDir, print_json
from fedsuite.cli.parsing import Command
from fedsuite.core.files import read_toml
from fedsuite.core.installation import CONFIGS, SUITES, shipped_files
from fedsuite.core.text import counted
from fedsuite.records.folder import DEFAULT_RESULTS

Listed = Literal["algorithms", "configs", "datasets", "models", "partitions", "runs", "suites"]
Entry = dict[str, Any]
commands = typer.Typer()


@commands.command("list", cls=Command)
def list_choices(
    what: Annotated[Listed, typer.Argument(metavar="WHAT", help=", ".join(get_args(Listed)))],
    as_json: AsJson = False,
    results_dir: ResultsDir = DEFAULT_RESULTS,
) -> None:
    """List algorithms, datasets, models, partitions, runs; configs and suites by their names."""
    from rich.table import Table
    from rich.text import Text

    from fedsuite.terminal.console import make_console

    entries = _entries(what, results_dir)
    if as_json:
        print_json(entries)
        return
    if not entries:
        print(f"There are no {what} in {Path(results_dir).absolute()}.")
        return
    console = make_console()
    longest = max(len(entry["name"]) for entry in entries)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=min(longest, console.width), overflow="fold")
    for entry in entries:
        table.add_row(Text(entry["name"], "bold"), *map(Text, _cells(what, entry)))
    console.print(table, highlight=False)


def _cells(what: Listed, entry: Entry) -> list[str]:
    """Return what the table says of an entry beside its name."""
    if what == "runs":
        known = entry["algo"] is not None
        return [f"{entry['algo']} on {entry['dataset']}" if known else "", entry["description"]]
    if what == "suites":
        small = entry["runs_small"]
        sizes = f"{counted(entry['runs'], 'run')}" + (f", {small} at small scale" if small else "")
        return [f"{entry['title']} ({sizes})"]
    more = entry.get("kinds") or ([f"model {entry['model']}"] if "model" in entry else [])
    return [entry["summary"] + (f" ({', '.join(more)})" if more else "")]


def _entries(what: Listed, results_dir: str) -> list[Entry]:
    if what == "runs":
        return _runs(results_dir)
    if what == "configs":
        files = shipped_files(CONFIGS).items()
        return [
            {"name": name, "summary": path.read_text().partition("\n")[0].strip("# ")}
            for name, path in files
        ]
    if what == "suites":
        return [_suite(name, read_toml(path)) for name, path in shipped_files(SUITES).items()]
    from fedsuite.core.plugins import GROUPS, registered

    key = next(key for key, group in GROUPS.items() if group.endswith(what))
    others = registered(key).items()
    return [*_own(what), *({"name": n, "summary": f"{ref}, of a package"} for n, ref in others)]


def _own(what: Listed) -> list[Entry]:
    if what == "algorithms":
        from fedsuite.registry import ALGORITHMS

        return [{"name": n, "summary": entry.summary} for n, entry in sorted(ALGORITHMS.items())]
    if what == "datasets":
        from tasks.datasets import DATASETS

        return [
            {"name": name, "summary": source.summary, "model": source.default_model}
            for name, source in DATASETS.items()
        ]
    if what == "models":
        from tasks.models import MODELS

        return [
            {"name": name, "summary": model.summary, "kinds": list(model.kinds)}
            for name, model in MODELS.items()
        ]
    from tasks.partitions import PARTITIONS

    return [{"name": name, "summary": scheme.summary} for name, scheme in PARTITIONS.items()]


def _suite(name: str, document: Mapping[str, Any]) -> Entry:
    return {
        "name": name,
        "title": document["title"],
        "paper": document.get("paper", []),
        "metric": document["metric"],
        "runs": document["runs"],
        "runs_small": document.get("runs-small"),
    }


def _runs(results_dir: str) -> list[Entry]:
    from fedsuite.records.reader import list_runs

    entries = []
    for name, run in list_runs(Path(results_dir)).items():
        metric, value = run.score or (None, None)
        entries.append(
            {
                "name": name,
                "folder": str(run.folder.absolute()),
                "state": run.state,
                **{key: run.config.get(key) for key in ("algo", "dataset", "seed")},
                "round": run.last_round,
                "metric": metric.name if metric else None,
                "value": value,
                "note": run.note,
                "description": run.description,
            }
        )
    return entries
