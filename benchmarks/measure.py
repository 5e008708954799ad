"""Runs one command and measures it from outside: time, peak memory of its process tree."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.25
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Measured:
    """A finished command: when it ran, how much memory it took, how it ended."""

    started: float
    ended: float
    peak_bytes: int
    status: int | None


class ProcessTree:
    """A process and every descendant it ever had."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {pid: self._root}

    def memory(self) -> int:
        """Return private memory of all processes, and shared memory once.

        Resident minus shared is next to the unique set size and, other than that, costs nothing
        to read; what is shared (libraries, mapped data) counts as the largest single share.
        """
        with suppress(psutil.NoSuchProcess):
            for child in self._root.children(recursive=True):
                self._known.setdefault(child.pid, child)
        private, shared = 0, 0
        for pid, process in list(self._known.items()):
            try:
                info = process.memory_info()
            except psutil.NoSuchProcess:
                del self._known[pid]
                continue
            private += info.rss - info.shared
            shared = max(shared, info.shared)
        return private + shared

    def end(self) -> None:
        """End whatever still runs: the root politely, then all that is left."""
        with suppress(psutil.NoSuchProcess):
            self._root.terminate()
            psutil.wait_procs([self._root], timeout=STOP_SECONDS)
        for process in self._known.values():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(list(self._known.values()), timeout=STOP_SECONDS)


def measure(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    timeout: float,
    look: Callable[[], None] = lambda: None,
) -> Measured:
    """Run a command to its end; ``look`` is called four times a second while it runs."""
    started = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    tree = ProcessTree(process.pid)
    peak = 0
    try:
        while process.poll() is None and time.time() < started + timeout:
            peak = max(peak, tree.memory())
            look()
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_SECONDS)
        ended = time.time()
        status = process.returncode
    finally:
        tree.end()
        process.wait()
    return Measured(started, ended, peak, status)
