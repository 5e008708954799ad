"""``fedsuite run`` and ``fedsuite resume``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsuite.cli import completion
from fedsuite.cli.options import (
    STATUSES,
    Files,
    Gpus,
    Nodes,
    RayAddress,
    ResultsDir,
    ResumeEngine,
    RunEngine,
    RunName,
    Settings,
    SuperLink,
)
from fedsuite.cli.parsing import Command
from fedsuite.core.files import absolute_path
from fedsuite.core.protocol import DEPLOYED, RAY
from fedsuite.core.settings import UserError, shown
from fedsuite.engines.table import AUTO, DEFAULT, engine_to_resume, prepare_engine, settle_engine
from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from fedsuite.config import RunConfig
    from fedsuite.flower.connections import Connection

PATH_KEYS = ("data-root", "results-dir", "server-data")
commands = typer.Typer()


@dataclass(frozen=True)
class Target:
    """Where a run is to be computed."""

    engine: str | None
    superlink: str
    nodes: int
    gpus: float
    ray_address: str = ""

    @property
    def settled_engine(self) -> str:
        """The engine, as far as options decide it; none at a SuperLink."""
        if self.superlink:
            return ""
        if self.ray_address:
            if self.engine not in (None, AUTO, RAY):
                raise UserError(
                    f"--ray-address has no effect on the engine {self.engine}. Leave one of the "
                    "two out."
                )
            return RAY
        return settle_engine(self.engine or DEFAULT, self.nodes, self.gpus)


@commands.command(cls=Command, epilog=f"`fedsuite settings` lists all keys. {STATUSES}")
def run(
    algo: Annotated[
        str,
        typer.Argument(
            metavar="ALGO",
            help="algorithm, see `fedsuite list algorithms`; or MODULE:ATTRIBUTE of your own",
            autocompletion=completion.algorithms,
        ),
    ],
    settings: Settings = None,
    file: Files = None,
    engine: RunEngine = None,
    superlink: SuperLink = "",
    ray_address: RayAddress = "",
    nodes: Nodes = None,
    gpus: Gpus = 0.0,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="name of the run and of its folder", show_default=False),
    ] = "",
) -> int:
    """Run one experiment."""
    from fedsuite.config import parse

    target = Target(engine, superlink, nodes or 0, gpus, ray_address)
    connection = _connection(target)
    here = connection is None or connection.is_loopback
    values = read_settings(file or [], settings or [], here) | {"algo": algo}
    if values.get("superlink"):
        raise UserError(f"'superlink' is an option: write --superlink {values['superlink']}.")
    if name:
        values["run-name"] = name
    engine = target.settled_engine
    with prepare_engine(engine, ray_address) as prepared:  # while settings are checked
        config = parse(values, idle=given_keys(settings or []))
        return _start(config, target, connection, prepared)


@commands.command(cls=Command, epilog=STATUSES)
def resume(
    name: RunName,
    results_dir: ResultsDir = DEFAULT_RESULTS,
    engine: ResumeEngine = None,
    superlink: SuperLink = "",
    ray_address: RayAddress = "",
    nodes: Nodes = None,
    gpus: Gpus = 0.0,
) -> int:
    """Resume an interrupted run."""
    from fedsuite.records.folder import RunFolder, RunIsDone, find_run

    target = Target(engine, superlink, nodes or 0, gpus, ray_address)
    connection = _connection(target)
    if connection is not None and not connection.is_loopback:
        return _resume_remotely(name, results_dir, target, connection)
    folder = find_run(name, results_dir)
    files = RunFolder(folder)
    if files.state.done:
        return _already_done(folder)
    ran_on = files.read_provenance().get("engine")
    if connection is None and ran_on == DEPLOYED:
        raise UserError(
            f"The run '{folder.name}' ran on deployed nodes. Resume it there, with "
            f"`{files.resume_command} --superlink NAME`."
        )
    if connection is None and engine is None and not ray_address:
        target = dataclasses.replace(target, engine=engine_to_resume(str(ran_on)))
    results, name = str(folder.parent), folder.name
    try:
        with prepare_engine(target.settled_engine, ray_address) as prepared:
            config = dataclasses.replace(
                files.read_config(), results_dir=results, run_name=name, resume=True
            )
            return _start(config, target, connection, prepared)
    except RunIsDone:  # by another command, while this one waited for it
        return _already_done(folder)


def _already_done(folder: Path) -> int:
    """Say that a run needs no resuming; return the status that it ended with."""
    from fedsuite.records.reader import read_run

    run = read_run(folder)
    if not run.done:
        raise UserError(f"The run '{run.name}' is done, but its record is damaged: {run.note}")
    lacks = f" {run.missing}." if run.missing else ""
    show = run.files.command("show")
    print(f"The run '{run.name}' is done ({run.state}); `{show}` shows it.{lacks}")
    return run.exit_status


def read_settings(files: Sequence[str], pairs: Sequence[str], here: bool = True) -> dict[str, Any]:
    """Merge TOML files and KEY=VALUE pairs.

    Paths are relative to the current directory, unless the run is not ``here``.
    """
    from fedsuite.config import read_toml

    values: dict[str, Any] = {}
    for file in files:
        values |= read_toml(Path(file))
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(
                f"'{shown(pair)}' is not a setting. Write KEY=VALUE, e.g. num-rounds=20."
            )
        values[key.strip()] = value.strip()
    for key in PATH_KEYS:
        if here and values.get(key):
            values[key] = str(absolute_path(str(values[key])))
    return values


def given_keys(pairs: Sequence[str]) -> frozenset[str]:
    """Return the keys of KEY=VALUE pairs; one without effect is refused, one of a file is not."""
    return frozenset(pair.partition("=")[0].strip() for pair in pairs)


def _resume_remotely(name: str, results_dir: str, target: Target, connection: Connection) -> int:
    """Resume a run whose folder, and settings with it, is on the SuperLink's machine."""
    from fedsuite.config import parse

    settings = {"run-name": name, "results-dir": results_dir, "resume": True}
    return _start(parse(settings), target, connection)


def _connection(target: Target) -> Connection | None:
    """Find the SuperLink to run on; none for an engine on this machine."""
    if not target.superlink:
        return None
    if target.engine or target.nodes or target.gpus or target.ray_address:
        raise UserError(
            "--superlink runs on the SuperNodes that are connected there: leave --engine, --nodes, "
            "--gpus and --ray-address out."
        )
    from fedsuite.flower.connections import find_connection

    return find_connection(target.superlink)


def _start(
    config: RunConfig, target: Target, connection: Connection | None, prepared: object = None
) -> int:
    if connection is not None:
        from fedsuite.engines.remote import submit_run

        return submit_run(config, connection)
    from fedsuite.engines.start import start_run
    from fedsuite.records.folder import default_name

    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    status = start_run(
        config, target.settled_engine, target.nodes, target.gpus, prepared, target.ray_address
    )
    if config.trackers:
        _track_report(config)
    return status


def _track_report(config: RunConfig) -> None:
    """Make the report of a run that is done, for trackers that keep one."""
    from fedsuite.records.folder import RunFolder
    from fedsuite.training.tracking import add_report, report_keepers

    files = RunFolder.of(config)
    if files.state.done and report_keepers(config):
        from fedsuite.report.build import make_report

        make_report(str(files.path), files.report)
        add_report(config, files)
