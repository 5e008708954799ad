"""Start and resume runs, on any engine; ``fedsuite run`` and ``fedsuite resume`` call these."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite.api.run import IncompleteRun, Run
from fedsuite.core.files import absolute_path
from fedsuite.core.installation import CONFIGS, find_file
from fedsuite.core.processes import interrupted_once
from fedsuite.core.protocol import DEPLOYED, RAY
from fedsuite.core.settings import UserError, flatten, kebab
from fedsuite.engines.table import AUTO, DEFAULT, engine_to_resume, prepare_engine, settle_engine
from fedsuite.records.folder import DEFAULT_RESULTS, RunFolder, RunIsDone, find_run

if TYPE_CHECKING:
    from fedsuite.config import RunConfig
    from fedsuite.flower.connections import Connection

PATH_KEYS = ("data-root", "results-dir", "server-data")


@dataclass(frozen=True)
class Target:
    """Where a run is to be computed."""

    engine: str | None
    superlink: str
    nodes: int
    gpus: float
    ray_address: str

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

    def connection(self) -> Connection | None:
        """Find the SuperLink to run on; none for an engine on this machine."""
        if not self.superlink:
            return None
        if self.engine or self.nodes or self.gpus or self.ray_address:
            raise UserError(
                "--superlink runs on the SuperNodes that are connected there: leave --engine, "
                "--nodes, --gpus and --ray-address out."
            )
        from fedsuite.flower.connections import find_connection

        return find_connection(self.superlink)


def run(
    algo: str,
    *,
    settings: Mapping[str, Any] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
    name: str = "",
    engine: str | None = None,
    nodes: int = 0,
    gpus: float = 0.0,
    ray_address: str = "",
    superlink: str = "",
    progress: bool = True,
    **keywords: Any,
) -> Run:
    """Run one experiment, and return it once it is done.

    Settings are keyword arguments with underscores (``num_rounds=20``), an algorithm's own a
    mapping under its name (``taco={"kappa": 0.7}``). ``settings`` takes them as the command line
    spells them (``{"taco.kappa": 0.7}``), and ``files`` are TOML files of them, or names of those
    that come with fedsuite; what is given to the call wins. The other arguments are options of
    ``fedsuite run``.

    A mistake raises ``UserError`` before anything starts, a run that fails ``RunFailed``. One that
    is done but lacks something of its clients is returned with the warning ``IncompleteRun``. An
    interrupted run can be resumed.
    """
    from fedsuite.config import parse

    given = {**flatten(settings or {}), **spell_keywords(keywords)}
    target = Target(engine, superlink, nodes, gpus, ray_address)
    connection = target.connection()
    here = connection is None or connection.is_loopback
    values = _values(algo, files, given, name, here)
    with (
        interrupted_once(),
        prepare_engine(
            target.settled_engine, ray_address
        ) as prepared,  # while settings are checked
    ):
        config = parse(values, idle=frozenset(given))
        return _start(config, target, connection, prepared, progress)


def estimate(
    algo: str,
    *,
    settings: Mapping[str, Any] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
    name: str = "",
    engine: str | None = None,
    nodes: int = 0,
    gpus: float = 0.0,
    ray_address: str = "",
    superlink: str = "",
    **keywords: Any,
) -> None:
    """Print what a run would take, in time and memory on this machine; nothing is started.

    The arguments are those of :func:`run`.
    """
    from fedsuite.config import parse
    from fedsuite.suites.forecast import forecast_run
    from fedsuite.terminal.console import make_console

    if superlink or ray_address:
        raise UserError(
            "--dry-run estimates runs on this machine: leave --superlink and --ray-address out."
        )
    given = {**flatten(settings or {}), **spell_keywords(keywords)}
    target = Target(engine, superlink, nodes, gpus, ray_address)
    values = _values(algo, files, given, name)
    config = parse(values, idle=frozenset(given))
    forecast_run(config, target.settled_engine, nodes, make_console())


def resume(
    name: str | os.PathLike[str],
    *,
    results_dir: str | os.PathLike[str] = DEFAULT_RESULTS,
    engine: str | None = None,
    nodes: int = 0,
    gpus: float = 0.0,
    ray_address: str = "",
    superlink: str = "",
    progress: bool = True,
) -> Run:
    """Resume an interrupted run, by its name or folder, and return it once it is done.

    It ends with the bits of one that was never interrupted. A run that is done is returned as it
    is; otherwise this raises and warns as :func:`run` does.
    """
    from fedsuite.config import parse

    target = Target(engine, superlink, nodes, gpus, ray_address)
    connection = target.connection()
    if connection is not None and not connection.is_loopback:  # where the run's settings are too
        there = {"run-name": os.fspath(name), "results-dir": os.fspath(results_dir)}
        return _start(parse(there | {"resume": True}), target, connection, None, progress)
    folder = find_run(os.fspath(name), os.fspath(results_dir))
    files = RunFolder(folder)
    if files.state.done:
        return _already_done(folder, progress)
    ran_on = files.read_provenance().get("engine")
    if connection is None and ran_on == DEPLOYED:
        raise UserError(
            f"The run '{folder.name}' ran on deployed nodes. Resume it there, with "
            f"`{files.resume_command} --superlink NAME`."
        )
    if connection is None and engine is None and not ray_address:
        target = dataclasses.replace(target, engine=engine_to_resume(str(ran_on)))
    try:
        with (
            interrupted_once(),
            prepare_engine(target.settled_engine, ray_address) as prepared,
        ):
            config = dataclasses.replace(
                files.read_config(),
                results_dir=str(folder.parent),
                run_name=folder.name,
                resume=True,
            )
            return _start(config, target, connection, prepared, progress)
    except RunIsDone:  # by another command, while this one waited for it
        return _already_done(folder, progress)


def _values(
    algo: str,
    files: Sequence[str | os.PathLike[str]],
    given: Mapping[str, Any],
    name: str,
    here: bool = True,
) -> dict[str, Any]:
    """Merge all that decides a run."""
    values = merge_settings(files, given, here) | {"algo": algo}
    if values.get("superlink"):
        raise UserError(f"'superlink' is an option: write --superlink {values['superlink']}.")
    return values | ({"run-name": name} if name else {})


def spell_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Spell keyword arguments as the command line does: ``num_rounds`` num-rounds.

    Numbers and arrays of NumPy become Python's.
    """
    return {
        ".".join(map(kebab, key.split("."))): value.tolist() if hasattr(value, "tolist") else value
        for key, value in flatten(keywords).items()
    }


def merge_settings(
    files: Sequence[str | os.PathLike[str]], given: Mapping[str, Any], here: bool = True
) -> dict[str, Any]:
    """Merge TOML files and settings, which win.

    Paths are relative to the current directory, unless the run is not ``here``.
    """
    from fedsuite.config import read_toml

    values: dict[str, Any] = {}
    for file in files:
        values |= read_toml(find_file(os.fspath(file), CONFIGS, "file"))
    values |= given
    for key in PATH_KEYS:
        if here and values.get(key):
            values[key] = str(absolute_path(str(values[key])))
    return values


def _start(
    config: RunConfig,
    target: Target,
    connection: Connection | None,
    prepared: object,
    progress: bool,
) -> Run:
    from fedsuite.terminal.console import make_console

    console = make_console(quiet=not progress)
    if connection is not None:
        from fedsuite.engines.remote import submit_run

        ended = submit_run(config, connection, console)
        return _warn_if_incomplete(Run(ended.folder, ended.machine, ended.lacks))
    from fedsuite.engines.contract import EngineOptions
    from fedsuite.engines.start import start_run

    options = EngineOptions(target.nodes, target.gpus, prepared, target.ray_address)
    folder = start_run(config, target.settled_engine, options, console)
    _track_report(config, RunFolder(folder))
    return _warn_if_incomplete(Run(folder))


def _track_report(config: RunConfig, files: RunFolder) -> None:
    """Make the report of a run that is done, for trackers that keep one."""
    if not config.trackers or not files.state.done:
        return
    from fedsuite.training.tracking import add_report, report_keepers

    if report_keepers(config):
        from fedsuite.report.build import make_report

        make_report(str(files.path), files.report)
        add_report(config, files)


def _already_done(folder: Path, progress: bool) -> Run:
    """Say that a run needs no resuming."""
    from fedsuite.terminal.console import make_console

    run = Run(folder)
    if not run.state.done:
        note = run.record.note
        raise UserError(f"The run '{run.name}' is done, but its record is damaged: {note}")
    run.was_done = True
    lacks = f"\nIt is incomplete: {run.missing}." if run.missing else ""
    make_console(quiet=not progress).print(
        f"The run '{run.name}' is done ({run.state}): there is nothing to resume.{lacks}",
        highlight=False,
        markup=False,
    )
    return _warn_if_incomplete(run)


def _warn_if_incomplete(run: Run) -> Run:
    if not run.machine and run.missing:
        message = f"The run '{run.name}' is done, but incomplete: {run.missing}."
        warnings.warn(message, IncompleteRun, stacklevel=4)
    return run
