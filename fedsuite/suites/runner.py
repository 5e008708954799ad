"""Run a suite: the runs that are not done, a few at a time, on this machine or a Ray cluster.

A run that crashes does not affect the others; when the suite ends, however it ends, its runs end
too, and the next call resumes them.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from fedsuite.core.files import absolute_path, locked, read_document, replacing_folder, write_json
from fedsuite.core.protocol import LINE_MARK, TO_RESUME
from fedsuite.core.settings import UserError, invalid
from fedsuite.engines.cluster import connected, describe_cluster, survey
from fedsuite.engines.table import DEFAULT_IN_SUITES
from fedsuite.records.folder import (
    DEFAULT_RESULTS,
    RunFolder,
    RunState,
    SuiteFolder,
    make_folder,
)
from fedsuite.records.reader import FAILED, INCOMPLETE
from fedsuite.records.writer import RunRecord
from fedsuite.suites.definition import Suite, select
from fedsuite.suites.forecast import Forecast, make_forecast, show_forecast
from fedsuite.suites.jobs import Job, manifest, plan_jobs, refuse_missing_data, suite_command
from fedsuite.suites.live_table import LiveTable, SuiteRun
from fedsuite.suites.process_group import ProcessGroup, group_width, nodes_per_run
from fedsuite.training.resume import find_checkpoint, resumed_config

POLL_SECONDS = 0.25
Confirm = Callable[[float, str], None]
"""Take the seconds that runs will take, and that in words; raise to start none."""


@dataclass(frozen=True)
class Where:
    """Where a suite's runs are computed: ``jobs`` at a time (0: as many as fit), by an engine.

    A ``ray_address`` is that of a Ray cluster, each of whose runs gets ``gpus`` GPUs.
    """

    jobs: int = 0
    engine: str = DEFAULT_IN_SUITES
    ray_address: str = ""
    gpus: float = 0.0


class Group(Protocol):
    """What computes runs, up to ``width`` at a time."""

    width: int

    def start(self, run: SuiteRun) -> None:
        """Start or resume a run."""

    def poll(self, run: SuiteRun) -> None:
        """Note whether a run has ended, and how."""

    def stop(self) -> None:
        """End all runs."""


def run_suite(
    suite: Suite,
    *,
    where: Where,
    only: Sequence[str],
    results: Path,
    data_root: str,
    console: Console,
    confirm: Confirm | None = None,
    show_results: Callable[[Path], None] | None = None,
) -> int:
    """Run what is not done; return 1 if a run failed, 3 if one lacks client updates, else 0.

    ``confirm`` is called before anything starts, ``show_results`` with the folder once all ended.
    """
    planned = plan(suite, where, only, results, data_root)
    refuse_missing_data(job.config for job in planned.waiting)
    forecast = planned.forecast()
    if confirm is not None:
        confirm(forecast.seconds, forecast.text)
    folder = results / suite.name
    make_folder(folder)
    busy = (
        f"The suite in {folder} is being run by another process. Wait for it to end, stop it, or "
        "choose another --results-dir."
    )
    with locked(SuiteFolder(folder).lock_file, busy):
        document = manifest(suite, planned.listed, data_root)
        write_json(SuiteFolder(folder).manifest_file, document)
        runs = [_take_up(job, planned.finished, forecast, console) for job in planned.jobs]
        view = LiveTable(console, suite, runs, forecast)
        try:
            with _open_group(where, planned.jobs, folder, console) as group, view:
                _work(runs, group, view)
        except KeyboardInterrupt:
            view.conclude(folder)
            again = suite_command(suite, data_root, *_options(suite, where, only, results))
            print(f"{LINE_MARK}{TO_RESUME}`{again}`", file=sys.stderr)
            raise
        if show_results is not None:
            show_results(folder)
        view.conclude(folder)
    if any(run.state is RunState.FAILED for run in runs):
        return FAILED
    return INCOMPLETE if any(run.missing for run in runs) else 0


def dry_run(
    suite: Suite,
    *,
    where: Where,
    only: Sequence[str],
    results: Path,
    data_root: str,
    console: Console,
) -> None:
    """List the runs with what they take, and start none."""
    planned = plan(suite, where, only, results, data_root)
    refuse_missing_data((job.config for job in planned.waiting), fetch=False)
    show_forecast(suite.heading, planned.jobs, planned.forecast(memory=True), console)


@dataclass(frozen=True)
class Planned:
    """The chosen runs, those to be run, all that the manifest lists, and what is done elsewhere."""

    jobs: Sequence[Job]
    waiting: Sequence[Job]
    listed: Sequence[Job]
    finished: Mapping[str, Path]
    results: Path
    where: Where

    def forecast(self, memory: bool = False) -> Forecast:
        """Estimate what the runs take that are to be run."""
        width = group_width(self.where.jobs, self.where.engine, _threads(self.jobs))
        nodes = nodes_per_run(self.where.engine, width)
        return make_forecast(self.waiting, self.results, self.where.engine, nodes, width, memory)


def plan(suite: Suite, where: Where, only: Sequence[str], results: Path, data_root: str) -> Planned:
    """Find out what there is to do."""
    absolute = str(absolute_path(data_root)) if data_root else ""
    if absolute and not Path(absolute).is_dir():
        raise invalid(
            "data-root" if suite.sweep else "--data-root",
            data_root,
            "it is not a folder. Give the folder that contains the datasets, or omit it to "
            "download them from the hub.",
        )
    jobs, listed = plan_jobs(suite, select(suite, only), results, absolute)
    finished = _finished_elsewhere(results / suite.name)
    waiting = [job for job in jobs if not job.done and (job.begun or job.key not in finished)]
    return Planned(jobs, waiting, listed, finished, results, where)


def _take_up(
    job: Job, finished: Mapping[str, Path], forecast: Forecast, console: Console
) -> SuiteRun:
    """Return a run as it is, copied if it is done elsewhere, or without a damaged record."""
    if job.key in finished and not job.begun:
        _copy(finished[job.key], job.folder)
    if job.done:
        return SuiteRun(job, job.files.state)
    if damage := _damage(job):
        aside = _free_name(job.folder)
        job.folder.rename(aside)
        told = f"{job.name} starts anew; its damaged record is kept as {aside}. {damage}"
        console.print(told, highlight=False, markup=False, soft_wrap=True)
    estimate = forecast.estimates.get(job.name)
    return SuiteRun(job, RunState.WAITING, estimate.seconds if estimate else None)


def _damage(job: Job) -> str:
    """Say why a run cannot be resumed; empty if it can, has not begun or is being written."""
    if not job.begun or job.files.is_being_written:
        return ""
    try:
        held = RunRecord.hold(job.folder)
        try:
            find_checkpoint(held, resumed_config(job.config))
        finally:
            held.close()
    except UserError as error:
        return str(error)
    return ""


def _free_name(folder: Path) -> Path:
    """Return a hidden name beside a folder that nothing has."""
    names = (folder.with_name(f".damaged-{number}-{folder.name}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


@contextmanager
def _open_group(
    where: Where, mine: Sequence[Job], folder: Path, console: Console
) -> Iterator[Group]:
    threads = _threads(mine)
    if not where.ray_address:
        yield ProcessGroup(where.engine, group_width(where.jobs, where.engine, threads))
        return
    from fedsuite.suites.cluster_group import ClusterGroup

    with connected(where.ray_address):
        machines = survey(folder)
        group = ClusterGroup(machines, where.jobs, threads, where.gpus)
        console.print(describe_cluster(machines, group.width), highlight=False)
        yield group


def _threads(jobs: Sequence[Job]) -> int:
    return max((job.config.client_threads for job in jobs), default=1)


def _work(runs: Sequence[SuiteRun], group: Group, view: LiveTable) -> None:
    waiting = [run for run in runs if run.state is RunState.WAITING]
    running: list[SuiteRun] = []
    try:
        while waiting or running:
            while waiting and len(running) < group.width:
                running.append(waiting.pop(0))
                group.start(running[-1])
            view.update()
            time.sleep(POLL_SECONDS)
            for run in running:
                group.poll(run)
            running = [run for run in running if run.state is RunState.RUNNING]
        view.update()
    finally:
        group.stop()


def _options(suite: Suite, where: Where, only: Sequence[str], results: Path) -> list[str]:
    """Return the options with which a suite was run, where they are not the usual ones."""
    words = ["--jobs", str(where.jobs)] if where.jobs else []
    words += ["--only", *only] if only else []
    if results != Path(DEFAULT_RESULTS).absolute() and not suite.sweep:
        words += ["--results-dir", str(results)]
    words += ["--engine", where.engine] if where.engine != DEFAULT_IN_SUITES else []
    words += ["--ray-address", where.ray_address] if where.ray_address else []
    return words + (["--gpus", f"{where.gpus:g}"] if where.gpus else [])


def _finished_elsewhere(folder: Path) -> dict[str, Path]:
    """Return the finished runs of the suites beside this one, by key."""
    found: dict[str, Path] = {}
    for suite in SuiteFolder(folder).others():
        found |= _listed(suite.manifest_file)
    return {key: place for key, place in found.items() if RunFolder(place).state.done}


def _listed(manifest: Path) -> dict[str, Path]:
    """Return a suite's runs by key; none if its manifest is damaged."""
    try:
        runs = read_document(manifest).get("runs", [])
        return {str(run["key"]): manifest.parent / str(run["name"]) for run in runs}
    except (UserError, OSError, KeyError, TypeError):
        return {}


def _copy(source: Path, target: Path) -> None:
    """Copy a finished run, whole or not at all."""
    with replacing_folder(target) as unfinished:
        shutil.copytree(source, unfinished, dirs_exist_ok=True)
