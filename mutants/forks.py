"""Run tests in forks of this process, which has imported torch and Flower but nothing of ours.

A fork starts in milliseconds where a new process takes seconds. Each has a copy of the tree to
itself, so that tests which read sources, or start a Python of their own, see the mutant too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT = "not slow and not ray and not deploy and not docker"
TEST_SECONDS = 10.0  # of processor time, and ten times what the test usually takes
JOB_SECONDS = 300.0  # on the clock, for what waits and computes nothing
EXTRA_MEMORY = 6 << 30
POLL_SECONDS = 0.01
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", ".mutants", ".hypothesis", ".*_cache", "runs", "results", "site", "build"
)
TIMED_OUT = 3


@dataclass(frozen=True)
class Job:
    """What one fork does: ``prepare`` its copy of the tree, run tests, ``restore`` the copy."""

    subject: Any
    tests: Sequence[str]
    usual_seconds: Mapping[str, float]
    prepare: Callable[[Path], None] = lambda tree: None
    restore: Callable[[Path], None] = lambda tree: None
    cover: Sequence[str] = ()


@dataclass
class Running:
    """A fork at work."""

    job: Job
    tree: Path
    deadline: float


class Recorder:
    """A pytest plugin that writes down what tests do, and gives each a limit of time."""

    def __init__(self, usual_seconds: Mapping[str, float], coverage: Any, report: Path) -> None:
        self.usual_seconds, self.coverage, self.report = usual_seconds, coverage, report
        self.content: dict[str, Any] = {"seconds": {}, "failed": [], "skipped": [], "current": ""}
        self.started = 0.0

    def write(self) -> None:
        """Write the report of this fork."""
        self.report.write_text(json.dumps(self.content))

    def give_up(self, *_: Any) -> None:
        """End the fork, at the test that takes too long."""
        self.content["timeout"] = True
        self.write()
        os._exit(TIMED_OUT)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start the clock of a test."""
        self.content["current"], self.started = nodeid, _processor_seconds()
        if self.coverage is not None:
            self.coverage.switch_context(nodeid)
        limit = TEST_SECONDS + 10 * self.usual_seconds.get(nodeid, 0.0)
        signal.setitimer(signal.ITIMER_PROF, limit)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's seconds up to the end of a phase."""
        self.content["seconds"][report.nodeid] = _processor_seconds() - self.started
        if report.failed:
            self.content["failed"].append(report.nodeid)
        elif report.skipped:
            self.content["skipped"].append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that cannot be imported as failed."""
        if report.failed:
            self.content["failed"].append(report.nodeid or "collection")


class Forks:
    """Copies of a tree, and a fork at work on each."""

    def __init__(self, root: Path, folder: Path, count: int, preload: Iterable[str]) -> None:
        for name in preload:
            importlib.import_module(name)
        self.root = root
        self.trees = [folder / f"tree{number}" for number in range(count)]
        for tree in self.trees:
            shutil.copytree(root, tree, ignore=IGNORED)

    def refuse_imported(self, packages: Iterable[str]) -> None:
        """Make sure that forks will import their own copy of the packages."""
        names = {package.split("/")[0] for package in packages}
        if ready := sorted(names & {module.split(".")[0] for module in sys.modules}):
            raise RuntimeError(f"{', '.join(ready)} is imported before the fork; see 'preload'.")

    def run(self, jobs: deque[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Run jobs side by side; yield each with its report as it ends. More may be added then."""
        idle, running = list(self.trees), dict[int, Running]()
        while True:
            while idle and jobs:
                job, tree = jobs.popleft(), idle.pop()
                job.prepare(tree)
                running[self._fork(job, tree)] = Running(job, tree, time.monotonic() + JOB_SECONDS)
            if not running:
                return
            time.sleep(POLL_SECONDS)
            for pid, work in list(running.items()):
                late = time.monotonic() > work.deadline
                if late:
                    _end(pid)
                if os.waitpid(pid, 0 if late else os.WNOHANG)[0]:
                    _end(pid)  # what the tests started and left behind
                    del running[pid]
                    work.job.restore(work.tree)
                    idle.append(work.tree)
                    yield work.job, _read_report(_report_of(work.tree), late)

    def _fork(self, job: Job, tree: Path) -> int:
        report = _report_of(tree)
        report.unlink(missing_ok=True)
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            _quiet(tree.with_suffix(".log"))
            _run(job, self.root, tree, report)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def _report_of(tree: Path) -> Path:
    return tree.with_suffix(".json")


def _read_report(path: Path, late: bool) -> dict[str, Any]:
    """Return a fork's report; one that died without any failed."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        empty = {"seconds": {}, "skipped": [], "current": "", "timeout": late}
        return empty | {"failed": ["the test process died"]}


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _quiet(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, file), (2, file)):
        os.dup2(source, target)


def _run(job: Job, root: Path, tree: Path, report: Path) -> None:
    sys.dont_write_bytecode = not job.cover
    sys.path[:] = [str(tree), *(path for path in sys.path if Path(path or ".").resolve() != root)]
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if sys.dont_write_bytecode:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(tree)
    _limit_memory()
    _be_deterministic()
    coverage = _coverage(tree, job.cover) if job.cover else None
    recorder = Recorder(job.usual_seconds, coverage, report)
    signal.signal(signal.SIGPROF, recorder.give_up)
    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-m", LEFT_OUT]
    place = [f"--rootdir={tree}", f"--basetemp={tree.with_suffix('.tmp')}"]
    stop = [] if job.cover else ["-x"]
    status = pytest.main([*options, *place, *stop, *job.tests], plugins=[recorder])
    signal.setitimer(signal.ITIMER_PROF, 0)
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        recorder.content["failed"].append("collection")
    if coverage is not None:
        coverage.stop()
        recorder.content["lines"] = _lines(coverage, tree)
    recorder.write()


def _processor_seconds() -> float:
    """Return the processor's time of this process and those it ended, whatever else is running."""
    return sum(os.times()[:4])


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + EXTRA_MEMORY, now + EXTRA_MEMORY))


def _be_deterministic() -> None:
    with contextlib.suppress(ImportError):
        from hypothesis import settings

        settings.register_profile("mutants", derandomize=True, database=None)
        settings.load_profile("mutants")


def _coverage(tree: Path, packages: Sequence[str]) -> Any:
    from coverage import Coverage

    include = [f"{tree}/{package}/*" for package in packages]
    together = ["thread", "greenlet"]  # clients of a stack run in greenlets
    coverage = Coverage(data_file=None, config_file=False, include=include, concurrency=together)
    coverage.start()
    return coverage


def _lines(coverage: Any, tree: Path) -> dict[str, dict[int, list[str]]]:
    """Return for each module, by line, the tests that executed it; '' stands for imports."""
    data = coverage.get_data()
    return {
        Path(file).relative_to(tree).as_posix(): data.contexts_by_lineno(file)
        for file in data.measured_files()
    }
