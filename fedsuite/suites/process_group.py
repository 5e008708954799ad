"""A suite's runs on this machine: each is a process of its own, with its share of cores."""

from __future__ import annotations

import os
import signal
import sys
from typing import IO

from fedsuite.core.installation import ROOT
from fedsuite.core.processes import Child, start, stop
from fedsuite.core.protocol import ITS_FOLDER_IS, LINE_MARK, TO_RESUME
from fedsuite.core.text import clean_line
from fedsuite.core.value_lists import write_pair
from fedsuite.engines.table import ENGINES
from fedsuite.suites.jobs import Job
from fedsuite.suites.live_table import SuiteRun

STOP_SIGNAL = signal.SIGINT
STOP_SECONDS = 20.0
NO_REASONS = (f"{LINE_MARK}{ITS_FOLDER_IS}", f"{LINE_MARK}{TO_RESUME}")


class ProcessGroup:
    """The processes of a suite's runs: up to ``width`` at a time, each with its share of cores."""

    def __init__(self, engine: str, width: int) -> None:
        self.engine, self.width = engine, width
        self.nodes = nodes_per_run(engine, width)
        self._children: dict[str, Child] = {}

    def start(self, run: SuiteRun) -> None:
        """Start or resume a run."""
        run.job.files.make()
        run.start()
        with run.job.files.console_file.open("ab") as output:
            self._children[run.job.name] = self._spawn(run.job, output)

    def poll(self, run: SuiteRun) -> None:
        """Note whether a run has ended, and how."""
        status = self._children[run.job.name].poll()
        if status is None:
            return
        del self._children[run.job.name]
        run.end("" if run.job.done else reason_of_failure(run.job, status))

    def stop(self) -> None:
        """End all runs: SIGINT, then SIGKILL."""
        stop(*self._children.values(), first=STOP_SIGNAL, grace=STOP_SECONDS)

    def _spawn(self, job: Job, output: IO[bytes]) -> Child:
        options = ["--engine", self.engine, "--nodes", str(self.nodes)]
        command = [sys.executable, "-m", "fedsuite.cli", *run_words(job), *options]
        return start(command, environment(job.config.client_threads), output=output)


def group_width(jobs: int, engine: str, threads: int) -> int:
    """Return the number of concurrent runs: as requested, but no more than cores allow.

    A run of a parallel engine uses all cores by itself, so the default there is one.
    """
    most = max(1, cores() // threads)
    return min(jobs or (1 if ENGINES[engine].parallel else most), most)


def nodes_per_run(engine: str, width: int) -> int:
    """Return the number of nodes of each of ``width`` concurrent runs."""
    return max(1, cores() // width) if ENGINES[engine].parallel else 1


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_words(job: Job) -> list[str]:
    """Return the command that starts or resumes a run, with the data-root of this call."""
    given = ("algo", "run-name")
    settings = {key: value for key, value in job.config.flat().items() if key not in given}
    settings["resume"] = job.begun
    pairs = [write_pair(key, value) for key, value in settings.items()]
    return ["run", job.config.algo, *pairs, "--name", job.name]


def environment(threads: int) -> dict[str, str]:
    """Return the variables of a run's process: this code, and as many threads as clients have."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    libraries = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return os.environ | {"PYTHONPATH": path} | dict.fromkeys(libraries, str(threads))


def reason_of_failure(job: Job, status: int) -> str:
    """Return in one line why a run failed."""
    said = job.files.reason or job.files.console_file.read_text(errors="replace")
    lines = [s for s in said.splitlines() if s.strip() and not s.startswith(NO_REASONS)]
    if status < 0:
        return f"ended by signal {-status}"
    return clean_line(lines[-1]) if lines else f"ended with status {status}"
