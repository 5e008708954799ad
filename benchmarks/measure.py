"""A command watched from outside: its times, and the peak memory that it takes.

That of its process tree is private memory, and shared memory once. That of the machine is by how
much less is available than before its start: it also has what lies in shared memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from fedsuite.core.processes import start, stop

SAMPLE_SECONDS = 0.2
POLL_SECONDS = 0.02
STOP_SECONDS = 20.0


class ProcessTree:
    """A process and every descendant it ever had."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {pid: self._root}

    def memory(self) -> int:
        """Return private memory of all processes, and shared memory once.

        Resident minus shared is close to the unique set size and costs next to nothing to read;
        what is shared (libraries, mapped data) counts as the largest single share.
        """
        self._meet()
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

    def others(self) -> int:
        """Return private memory of all processes that are not of this tree."""
        self._meet()
        total = 0
        for process in psutil.process_iter():
            if process.pid not in self._known:
                with suppress(psutil.Error):
                    info = process.memory_info()
                    total += info.rss - info.shared
        return total

    def cpu_seconds(self) -> dict[int, float]:
        """Return the processor time each process has used so far."""
        self._meet()
        used = {}
        for pid, process in self._known.items():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[pid] = times.user + times.system
        return used

    def _meet(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in self._root.children(recursive=True):
                self._known.setdefault(child.pid, child)


def available_memory() -> int:
    """Return how many bytes new work could take without swapping."""
    return int(psutil.virtual_memory().available)


def processor_share(trees: Sequence[ProcessTree], seconds: float) -> float:
    """Return the share of one core that process trees use over some seconds."""
    before = [tree.cpu_seconds() for tree in trees]
    time.sleep(seconds)
    after = [tree.cpu_seconds() for tree in trees]
    pairs = zip(before, after, strict=True)
    return sum(new[pid] - old.get(pid, 0.0) for old, new in pairs for pid in new) / seconds


class MachineMemory:
    """What a command takes of the machine's memory, if nothing else changes while it is watched.

    Between watches others may take and give back; what the command held then, it still holds.
    ``drift`` is by how much the memory of others has changed during watches, at most: if that is
    much, ``peak`` says little.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.drift = 0
        self._held = 0
        self._before = 0
        self._drifted = 0
        self._others = 0

    def begin(self, available: int, others: int) -> None:
        """Watch from now on."""
        self._before, self._others = available, others

    def sample(self, available: int) -> None:
        """Note what is available."""
        self.peak = max(self.peak, self._held + self._before - available)

    def end(self, available: int, others: int) -> None:
        """Note what is available, and what the command holds as the watch ends."""
        self.sample(available)
        self._held += self._before - available
        self._drifted += others - self._others
        self.drift = max(self.drift, abs(self._drifted))


class Watched:
    """A running command; memory is sampled only while it is waited for."""

    def __init__(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
        self.started = time.time()
        self.ended = 0.0
        self.peak_bytes = 0
        self.machine = MachineMemory()
        with log.open("wb") as output:
            self._process = start(command, os.environ | dict(variables), output=output)
        self.tree = ProcessTree(self._process.pid)

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.returncode

    def wait_for(self, done: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is done; False if the command ended first or time ran out."""
        deadline, next_sample = time.time() + timeout, 0.0
        self.machine.begin(available_memory(), self.tree.others())
        try:
            while not done():
                now = time.time()
                if self._process.poll() is not None or now > deadline:
                    return done()
                if now >= next_sample:
                    self.peak_bytes = max(self.peak_bytes, self.tree.memory())
                    self.machine.sample(available_memory())
                    next_sample = now + SAMPLE_SECONDS
                time.sleep(POLL_SECONDS)
            return True
        finally:
            self.machine.end(available_memory(), self.tree.others())

    def wait_end(self, timeout: float) -> bool:
        """Wait for the end; False if time ran out."""
        over = self.wait_for(lambda: self._process.poll() is not None, timeout)
        self.ended = time.time()
        return over

    def end(self) -> None:
        """End the command and all it started."""
        stop(self._process, grace=STOP_SECONDS)
