"""Run a suite: the runs that are not done, a few at a time, on this machine or a Ray cluster.

A run that crashes does not affect the others; when the suite ends, however it ends, its runs end
too, and the next call resumes them.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
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
from fedsuite.suites.definition import Suite, select
from fedsuite.suites.jobs import Job, manifest, plan_jobs, suite_command
from fedsuite.suites.live_table import LiveTable, SuiteRun
from fedsuite.suites.process_group import ProcessGroup, group_width

POLL_SECONDS = 0.25


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
) -> int:
    """Run what is not done; return 1 if a run failed, 3 if one lacks client updates, else 0."""
    absolute = str(absolute_path(data_root)) if data_root else ""
    if absolute and not Path(absolute).is_dir():
        raise invalid(
            "--data-root",
            data_root,
            "it is not a folder. Give the folder that contains the datasets, or omit it to "
            "download them from the hub.",
        )
    mine, listed = plan_jobs(suite, select(suite, only), results, absolute)
    folder = results / suite.name
    make_folder(folder)
    busy = (
        f"The suite in {folder} is being run by another process. Wait for it to end, stop it, or "
        "choose another --results-dir."
    )
    with locked(SuiteFolder(folder).lock_file, busy):
        write_json(SuiteFolder(folder).manifest_file, manifest(suite, listed, data_root))
        finished = _finished_elsewhere(folder)
        for job in mine:
            if job.key in finished and not job.begun:
                _copy(finished[job.key], job.folder)
        states = [job.files.state for job in mine]
        states = [state if state.done else RunState.WAITING for state in states]
        runs = [SuiteRun(job, state) for job, state in zip(mine, states, strict=True)]
        try:
            with _open_group(where, mine, folder, console) as group:
                with LiveTable(console, suite, runs) as view:
                    _work(runs, group, view)
        except KeyboardInterrupt:
            again = suite_command(suite, data_root, *_options(where, only, results))
            print(f"{LINE_MARK}{TO_RESUME}`{again}`", file=sys.stderr)
            raise
        view.conclude(folder)
    if any(run.state is RunState.FAILED for run in runs):
        return FAILED
    return INCOMPLETE if any(run.missing for run in runs) else 0


@contextmanager
def _open_group(
    where: Where, mine: Sequence[Job], folder: Path, console: Console
) -> Iterator[Group]:
    threads = max((job.config.client_threads for job in mine), default=1)
    if not where.ray_address:
        yield ProcessGroup(where.engine, group_width(where.jobs, where.engine, threads))
        return
    from fedsuite.suites.cluster_group import ClusterGroup

    with connected(where.ray_address):
        machines = survey(folder)
        group = ClusterGroup(machines, where.jobs, threads, where.gpus)
        console.print(describe_cluster(machines, group.width), highlight=False)
        yield group


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


def _options(where: Where, only: Sequence[str], results: Path) -> list[str]:
    """Return the options with which a suite was run, where they are not the usual ones."""
    words = ["--jobs", str(where.jobs)] if where.jobs else []
    words += ["--only", *only] if only else []
    words += ["--results-dir", str(results)] if results != Path(DEFAULT_RESULTS).absolute() else []
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
