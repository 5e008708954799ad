"""Run a suite: the runs that are not done, a few at a time, each in a process of its own.

A run that crashes does not affect the others; when the suite ends, however it ends, its runs end
too, and the next call resumes them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

from fedsuite.core.files import absolute_path, locked, read_document, replacing_folder, write_json
from fedsuite.core.processes import Child, start, stop
from fedsuite.core.protocol import ITS_FOLDER_IS, LINE_MARK, TO_RESUME
from fedsuite.core.settings import UserError, invalid, spell
from fedsuite.core.text import clean_line
from fedsuite.engines.table import DEFAULT_IN_SUITES, ENGINES
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

POLL_SECONDS = 0.25
STOP_SECONDS = 20.0
NO_REASONS = (f"{LINE_MARK}{ITS_FOLDER_IS}", f"{LINE_MARK}{TO_RESUME}")


def run_suite(
    suite: Suite,
    *,
    jobs: int,
    only: Sequence[str],
    results: Path,
    engine: str,
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
            with LiveTable(console, suite, runs) as view:
                _work(runs, ProcessGroup(engine, _width(jobs, engine, mine)), view)
        except KeyboardInterrupt:
            again = suite_command(suite, data_root, *_options(jobs, only, results, engine))
            print(f"{LINE_MARK}{TO_RESUME}`{again}`", file=sys.stderr)
            raise
        view.conclude(folder)
    if any(run.state is RunState.FAILED for run in runs):
        return FAILED
    return INCOMPLETE if any(run.missing for run in runs) else 0


class ProcessGroup:
    """The processes of a suite's runs: up to ``width`` at a time, each with its share of cores."""

    def __init__(self, engine: str, width: int) -> None:
        self.engine, self.width = engine, width
        self.nodes = max(1, cores() // width) if ENGINES[engine].parallel else 1
        self._children: dict[str, Child] = {}

    def start(self, run: SuiteRun) -> None:
        """Start or resume a run."""
        make_folder(run.job.folder)
        run.start()
        with run.job.files.console_file.open("ab") as output:
            self._children[run.job.name] = self._spawn(run.job, output)

    def poll(self, run: SuiteRun) -> None:
        """Note whether a run has ended, and how."""
        status = self._children[run.job.name].poll()
        if status is None:
            return
        del self._children[run.job.name]
        run.end("" if run.job.done else _reason(run.job, status))

    def stop(self) -> None:
        """End all runs: SIGINT, then SIGKILL."""
        stop(*self._children.values(), first=signal.SIGINT, grace=STOP_SECONDS)

    def _spawn(self, job: Job, output: IO[bytes]) -> Child:
        options = ["--engine", self.engine, "--nodes", str(self.nodes)]
        command = [sys.executable, "-m", "fedsuite.cli", *_words(job), *options]
        return start(command, _environment(job.config.client_threads), output=output)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work(runs: Sequence[SuiteRun], group: ProcessGroup, view: LiveTable) -> None:
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


def _width(jobs: int, engine: str, mine: Sequence[Job]) -> int:
    """Return the number of concurrent runs: as requested, but no more than cores allow.

    A run of a parallel engine uses all cores by itself, so the default there is one.
    """
    threads = max((job.config.client_threads for job in mine), default=1)
    most = max(1, cores() // threads)
    return min(jobs or (1 if ENGINES[engine].parallel else most), most)


def _options(jobs: int, only: Sequence[str], results: Path, engine: str) -> list[str]:
    """Return the options with which a suite was run, where they are not the usual ones."""
    words = ["--jobs", str(jobs)] if jobs else []
    words += ["--only", *only] if only else []
    words += ["--results-dir", str(results)] if results != Path(DEFAULT_RESULTS).absolute() else []
    return words + (["--engine", engine] if engine != DEFAULT_IN_SUITES else [])


def _words(job: Job) -> list[str]:
    """Return the command that starts or resumes a run, with the data-root of this call."""
    given = ("algo", "run-name")
    settings = {key: value for key, value in job.config.flat().items() if key not in given}
    settings["resume"] = job.begun
    pairs = [f"{key}={spell(value)}" for key, value in settings.items()]
    return ["run", job.config.algo, *pairs, "--name", job.name]


def _environment(threads: int) -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    libraries = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return os.environ | {"PYTHONPATH": path} | dict.fromkeys(libraries, str(threads))


def _reason(job: Job, status: int) -> str:
    """Return in one line why a run failed."""
    said = job.files.reason or job.files.console_file.read_text(errors="replace")
    lines = [s for s in said.splitlines() if s.strip() and not s.startswith(NO_REASONS)]
    if status < 0:
        return f"ended by signal {-status}"
    return clean_line(lines[-1]) if lines else f"ended with status {status}"


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
