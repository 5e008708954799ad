"""Processes that outlive the command that started them, and are found again without mistake.

A process is remembered by its pid and the time it started, since pids are given out again. It and
all that it starts carry a mark in their environment, so that nothing is left behind when it ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from fedsuite.core.files import write_json
from fedsuite.flower.commands import STOP_SECONDS

MARK = "FEDSUITE_DEPLOYMENT"
START_TOLERANCE = 2.0
KILL_SECONDS = 10.0
STRAY_SECONDS = 3.0


@dataclass(frozen=True)
class Process:
    """A process of a federation: its part, its pid, when it started, the mark of its family."""

    name: str
    pid: int
    started: float
    mark: str

    def is_running(self) -> bool:
        """Say whether it runs, and not another process under its old pid."""
        return self.find() is not None

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) < START_TOLERANCE
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def family(self) -> list[psutil.Process]:
        """Return all processes that carry its mark, itself included, orphans too."""
        return [found for found in psutil.process_iter() if _mark_of(found) == self.mark]


def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    mark: str,
    log: Path,
    cwd: Path,
    pids: Path,
) -> Process:
    """Start a process in a session of its own, its output appended to ``log``; note its pid."""
    for folder in (log.parent, pids):
        folder.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            env={**environment, MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = Process(name, child.pid, psutil.Process(child.pid).create_time(), mark)
    write_json(pids / f"{name}.json", asdict(process))
    return process


def read_processes(pids: Path) -> list[Process]:
    """Return the processes noted in a folder, running or not."""
    paths = sorted(pids.glob("*.json"))
    return [Process(**json.loads(path.read_text())) for path in paths]


def stop(*processes: Process) -> list[Process]:
    """End processes and all they started: politely, then for good; return those that ran."""
    running = [process for process in processes if process.is_running()]
    _signal([p.find() for p in running], signal.SIGTERM)
    _await_end([p.find() for p in running], STOP_SECONDS)
    strays = [member for process in processes for member in process.family()]
    _signal(strays, signal.SIGTERM)
    _await_end(strays, STRAY_SECONDS)
    kill(*processes)
    return running


def kill(*processes: Process) -> None:
    """End processes and all they started at once, as a power cut would."""
    family = [member for process in processes for member in process.family()]
    _signal(family, signal.SIGKILL)
    _await_end(family, KILL_SECONDS)


def _mark_of(found: psutil.Process) -> str | None:
    try:
        return str(found.environ().get(MARK))
    except (psutil.Error, OSError):
        return None


def _signal(processes: Sequence[psutil.Process | None], number: int) -> None:
    for process in processes:
        try:
            if process is not None:
                process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def _await_end(processes: Sequence[psutil.Process | None], seconds: float) -> None:
    """Wait for the ends; reap those that are children of this very process."""
    psutil.wait_procs([process for process in processes if process is not None], timeout=seconds)
