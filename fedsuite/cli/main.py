"""The ``fedsuite`` command."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite.cli.deploy import add_deploy_commands
from fedsuite.cli.view import add_view_commands
from fedsuite.core.settings import UserError
from fedsuite.engines.table import DEFAULT, ENGINES, engine_to_resume

if TYPE_CHECKING:
    from fedsuite.config import RunConfig
    from fedsuite.flower.connections import Connection

PATH_KEYS = ("data-root", "results-dir", "server-data")
EXAMPLES = """\
examples:
  fedsuite run fedavg
  fedsuite run fedprox fedprox.zeta=0.01 dataset=fashion-mnist data-root=../data num-rounds=50
  fedsuite run local partition=pathological --engine inline --name alone
  fedsuite resume alone
  fedsuite deploy up --nodes 4 --auth
  fedsuite run fedavg --superlink local-deployment
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    arguments = _read_arguments(argv)
    try:
        return int(arguments.do(arguments) or 0)
    except UserError as error:
        print(f"fedsuite: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedsuite: interrupted", file=sys.stderr)
        return 130


def _read_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse arguments; settings may stand before, between and after options."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    stray = [word for word in rest if word.startswith("-") or not hasattr(arguments, "settings")]
    if stray:
        parser.error(f"unrecognised: {' '.join(stray)} (see `fedsuite --help`)")
    if rest:
        arguments.settings = [*arguments.settings, *rest]
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fedsuite",
        description="Federated-learning papers and their baselines as one Flower app.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run", help="run one experiment", epilog="`fedsuite keys` lists all keys."
    )
    run.add_argument("algo", metavar="ALGO", help="algorithm, see `fedsuite list algorithms`")
    _add_settings(run)
    _add_engine(run)
    run.add_argument("--name", default="", help="name of the run and of its folder")
    run.set_defaults(do=_run)

    resume = commands.add_parser("resume", help="go on with a run that was interrupted")
    _add_run(resume)
    _add_engine(resume)
    resume.set_defaults(do=_resume)

    suite = commands.add_parser("suite", help="run all experiments of a table or figure")
    suite.add_argument("file", metavar="FILE", help="suite file, see sim_configs/suites")
    suite.add_argument("--scale", choices=("paper", "small"), default="paper", help="how large")
    suite.add_argument("--jobs", type=_positive, default=0, metavar="N", help="runs at a time")
    suite.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="LABEL=VALUE", help="pick runs"
    )
    suite.add_argument("--results-dir", default="runs", help="where suites are (default: runs)")
    suite.add_argument("--data-root", default="", metavar="DIR", help="hub-style parquet")
    suite.add_argument("--engine", choices=tuple(ENGINES), default="inline")
    suite.set_defaults(do=_suite)

    show = commands.add_parser("show", help="show a run's results")
    _add_run(show)
    show.set_defaults(do=_show)

    split = commands.add_parser("partition", help="draw who has which labels")
    _add_settings(split)
    split.add_argument("-o", "--output", default="partition.png", help="PNG file to write")
    split.set_defaults(do=_partition)

    lists = commands.add_parser("list", help="list what there is to choose from")
    lists.add_argument("what", choices=("algorithms", "datasets", "models", "partitions", "runs"))
    lists.add_argument("--results-dir", default="runs", help="where runs are (default: runs)")
    lists.set_defaults(do=_list)

    keys = commands.add_parser("keys", help="explain every key with its default")
    keys.set_defaults(do=_keys)
    add_view_commands(commands)
    add_deploy_commands(commands, _positive)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*", help="settings; later ones win")
    parser.add_argument("-f", "--file", action="append", default=[], help="TOML file of settings")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="name of a run, or its folder")
    parser.add_argument("--results-dir", default="runs", help="where runs are (default: runs)")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=tuple(ENGINES),
        help="; ".join(f"{name}: {engine.summary}" for name, engine in ENGINES.items())
        + f" (default: {DEFAULT}, or as it ran)",
    )
    parser.add_argument(
        "--superlink", default="", metavar="NAME", help="run on real nodes, by Flower's connection"
    )
    parser.add_argument(
        "--nodes",
        type=_positive,
        default=0,
        metavar="N",
        help="worker nodes (default: ray one per core, inline 1)",
    )
    parser.add_argument(
        "--gpus", type=float, default=0.0, metavar="SHARE", help="ray: share of a GPU per node"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    from fedsuite.config import parse

    connection = _connection(arguments)
    here = connection is None or connection.is_loopback
    values = read_settings(arguments.file, arguments.settings, here) | {"algo": arguments.algo}
    if arguments.name:
        values["run-name"] = arguments.name
    return _start(parse(values), arguments, connection)


def _resume(arguments: argparse.Namespace) -> int:
    from fedsuite.core.files import read_document
    from fedsuite.records.writer import META, find_run, read_config

    connection = _connection(arguments)
    if connection is not None and not connection.is_loopback:
        return _resume_there(arguments, connection)
    folder = find_run(arguments.name, arguments.results_dir)
    status = read_document(folder / "summary.json").get("status")
    if status in ("finished", "target reached"):
        print(f"The run '{folder.name}' is done ({status}); `fedsuite show` shows it.")
        return 0
    engine = read_document(folder / "config.json").get(META, {}).get("engine")
    if connection is None and arguments.engine is None:
        if engine == "deployed":
            raise UserError(
                f"The run '{folder.name}' ran on deployed nodes. Go on with it there, by "
                f"`fedsuite resume {arguments.name} --superlink NAME`."
            )
        arguments.engine = engine_to_resume(str(engine))
    config = dataclasses.replace(
        read_config(folder), results_dir=str(folder.parent), run_name=folder.name, resume=True
    )
    return _start(config, arguments, connection)


def _resume_there(arguments: argparse.Namespace, connection: Connection) -> int:
    """Go on with a run whose folder is on the SuperLink's machine, and its settings with it."""
    from fedsuite.config import parse

    place = {"run-name": arguments.name, "results-dir": arguments.results_dir}
    return _start(parse({**place, "resume": True}), arguments, connection)


def _connection(arguments: argparse.Namespace) -> Connection | None:
    """Find the SuperLink to run on; none for an engine on this machine."""
    if not arguments.superlink:
        return None
    if arguments.engine or arguments.nodes or arguments.gpus:
        raise UserError(
            "--superlink runs on the SuperNodes that are connected there: leave --engine, --nodes "
            "and --gpus out."
        )
    from fedsuite.flower.connections import find_connection

    return find_connection(arguments.superlink)


def _start(config: RunConfig, arguments: argparse.Namespace, connection: Connection | None) -> int:
    if connection is not None:
        from fedsuite.engines.remote import submit_run

        return submit_run(config, connection)
    from fedsuite.engines.start import start_run

    return start_run(config, arguments.engine or DEFAULT, arguments.nodes, arguments.gpus)


def read_settings(files: Sequence[str], pairs: Sequence[str], here: bool = True) -> dict[str, Any]:
    """Merge TOML files and KEY=VALUE pairs.

    Relative paths are taken from where the user stands, unless the run is not ``here``.
    """
    from fedsuite.config import read_toml

    values: dict[str, Any] = {}
    for file in files:
        values |= read_toml(Path(file))
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"'{pair}' is not a setting. Write KEY=VALUE, e.g. num-rounds=20.")
        values[key.strip()] = value.strip()
    for key in PATH_KEYS:
        if here and values.get(key):
            values[key] = str(Path(str(values[key])).expanduser().absolute())
    return values


def _suite(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from fedsuite.suites.definition import read_suite
    from fedsuite.suites.runner import run_suite

    return run_suite(
        read_suite(Path(arguments.file), arguments.scale),
        jobs=arguments.jobs,
        only=arguments.only,
        results=Path(arguments.results_dir).expanduser().absolute(),
        engine=arguments.engine,
        data_root=arguments.data_root,
        console=Console(),
    )


def _show(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from fedsuite.records.writer import find_run
    from fedsuite.terminal.progress import show

    show(find_run(arguments.name, arguments.results_dir), Console())


def _partition(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from fedsuite.config import parse
    from fedsuite.report.label_plot import label_table, save_label_png
    from tasks.partitions import label_counts
    from tasks.task import open_task

    config = parse(read_settings(arguments.file, arguments.settings))
    task = open_task(config.task)
    parts = task.split.train
    counts = label_counts(parts, task.dataset.y, task.shape.num_classes)
    console = Console()
    title = (
        f"{config.dataset}, {config.partition}, {config.num_clients} clients, seed {config.seed}"
    )
    console.print(f"[bold]{title}[/bold]  split {task.split.fingerprint}", highlight=False)
    console.print(label_table(counts, task.dataset.class_names, console.width))
    save_label_png(counts, task.dataset.class_names, Path(arguments.output), title)
    console.print(f"drawn to {arguments.output}", highlight=False)


def _list(arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, summary in _choices(arguments.what, arguments.results_dir):
        table.add_row(f"[bold]{name}[/bold]", summary)
    Console().print(table, highlight=False)


def _choices(what: str, results_dir: str) -> list[tuple[str, str]]:
    if what == "algorithms":
        from fedsuite import registry

        names = sorted(registry.ALGORITHMS)
        return [(name, registry.find(name).strategy.summary_line) for name in names]
    if what == "datasets":
        from tasks.datasets import DATASETS

        return [(n, f"{s.summary} (model {s.default_model})") for n, s in DATASETS.items()]
    if what == "models":
        from tasks.models import MODELS

        return [(n, f"{s.summary} ({', '.join(s.kinds)})") for n, s in MODELS.items()]
    if what == "runs":
        return _runs(results_dir)
    from tasks.partitions import PARTITIONS

    return list(PARTITIONS.items())


def _runs(results_dir: str) -> list[tuple[str, str]]:
    from fedsuite.core.files import read_document, read_lines

    rows = []
    for path in sorted(Path(results_dir).glob("*/config.json")):
        summary = read_document(path.parent / "summary.json")
        history = read_lines(path.parent / "history.jsonl")
        status = summary.get("status", "not finished")
        accuracy = summary.get("final_accuracy") or summary.get("personal_accuracy")
        score = f", accuracy {accuracy:.4f}" if accuracy is not None else ""
        rows.append((path.parent.name, f"{status}, {len(history)} rounds recorded{score}"))
    return rows


def _keys(arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedsuite import registry
    from fedsuite.config import RunConfig
    from fedsuite.core.settings import kebab

    groups: list[tuple[str, Any]] = [("", RunConfig)]
    groups += [(f"{n}.", registry.find(n).strategy.Params) for n in sorted(registry.ALGORITHMS)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("key", "default", "meaning"):
        table.add_column(heading)
    for prefix, group in groups:
        for field in dataclasses.fields(group):
            if "help" in field.metadata:
                default = (
                    str(field.default).lower() if isinstance(field.default, bool) else field.default
                )
                table.add_row(f"{prefix}{kebab(field.name)}", str(default), field.metadata["help"])
    Console().print(table, highlight=False, markup=False)
