"""Child processes: started in a session of their own, identified reliably, ended.

A process is identified by its pid and its start time, since pids are reused. It and all its
descendants carry a mark in their environment, so that ending it leaves none of them behind, not
even those whose own parent has ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

MARK = "FEDSUITE_PROCESS"
STOP_SECONDS = 15.0
STRAY_SECONDS = 3.0
KILL_SECONDS = 10.0
POLL_SECONDS = 0.05
START_TOLERANCE = 2.0
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ENDING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED, TERMINATED = (128 + number for number in ENDING)  # exit statuses, as shells have them


@dataclass(frozen=True)
class Process:
    """The identity of a process: what it is called, its pid and start time, its family's mark."""

    name: str
    pid: int
    started: float
    mark: str = ""

    @classmethod
    def current(cls) -> Process:
        """Return this very process."""
        return cls("", os.getpid(), psutil.Process().create_time())

    @classmethod
    def from_text(cls, text: str) -> Process:
        """Read what :meth:`to_text` wrote."""
        pid, _, started = text.partition("@")
        return cls("", int(pid), float(started))

    def to_text(self) -> str:
        """Write pid and start time, for another process to find this one."""
        return f"{self.pid}@{self.started}"

    @classmethod
    def is_current(cls, text: str) -> bool:
        """Return whether :meth:`to_text` wrote this of the current process."""
        pid, _, started = text.partition("@")
        if pid != str(os.getpid()):
            return False
        return abs(float(started) - psutil.Process().create_time()) < START_TOLERANCE

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs; never another one with the same pid."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) < START_TOLERANCE
        except psutil.NoSuchProcess:
            return None
        return found if same and _is_alive(found) else None

    def is_running(self) -> bool:
        """Return whether the process still runs."""
        return self.find() is not None

    def family(self) -> list[psutil.Process]:
        """Return the process and its descendants that still run, orphans included.

        A process that sets its own title overwrites its environment, as Ray's workers do: those
        without a mark belong to the family of their parent.
        """
        marks = {found: _mark_of(found) for found in psutil.process_iter()}
        prefix = f"{self.mark}/"
        members = [p for p, mark in marks.items() if self.mark and f"{mark}/".startswith(prefix)]
        unmarked = [p for p, mark in marks.items() if not mark]
        for member in members:  # grows while it is read
            members += [p for p in unmarked if _parent_of(p) == member.pid]
        return [member for member in members if member.pid != os.getpid()]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def interrupted_once(restore: bool = True) -> Iterator[None]:
    """Raise :class:`KeyboardInterrupt` at the first Ctrl-C or SIGTERM during a block, then no more.

    What has to be done before the process ends, such as to record the run, is not cut short by a
    second one; without ``restore``, nor is what Python does when it exits. Only the main thread
    can do so; a signal that this process ignores, or handles in a way of its own, stays as it is.
    """
    usual = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [n for n in ENDING if signal.getsignal(n) in usual]
    if threading.current_thread() is not threading.main_thread():
        numbers = []

    def interrupt(number: int, frame: object) -> None:
        for other in numbers:
            signal.signal(other, _do_nothing)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            was_interrupted = signal.getsignal(number) is _do_nothing
            signal.signal(number, signal.SIG_IGN if was_interrupted and not restore else handler)


class Child(subprocess.Popen[bytes]):
    """A child process of this one, with its identity."""

    identity: Process


def start(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    name: str = "",
    mark: str = "",
    cwd: Path | None = None,
    output: IO[bytes] | int = subprocess.DEVNULL,
    errors: IO[bytes] | int = subprocess.STDOUT,
    outlives_parent: bool = False,
) -> Child:
    """Start a process in a session of its own, out of reach of the terminal's Ctrl-C.

    It ends with this process, however this process ends (Linux), unless it ``outlives_parent``.
    ``mark`` begins a family of its own; without it the child belongs to this process's family.
    """
    mark = mark or f"{os.environ.get(MARK, '')}/{uuid.uuid4().hex}"
    child = Child(
        command,
        env={**(os.environ if environment is None else environment), MARK: mark},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c if outlives_parent else end_with_parent,
    )
    child.identity = Process(name, child.pid, psutil.Process(child.pid).create_time(), mark)
    return child


def stop(
    *processes: Process | Child,
    first: signal.Signals = signal.SIGTERM,
    grace: float = STOP_SECONDS,
) -> list[Process]:
    """End processes and their descendants: ``first``, after ``grace`` seconds SIGKILL.

    Descendants that outlive their process get a SIGTERM of their own. Return what was running.
    """
    identities = [_identity(process) for process in processes]
    running = {identity: found for identity in identities if (found := identity.find())}
    family = _families(identities)
    _signal(running.values(), first)
    _await_end(running.values(), grace)
    strays = {member for member in family | _families(identities) if _is_alive(member)}
    _signal(strays, signal.SIGTERM)
    _await_end(strays, STRAY_SECONDS)
    _kill(processes, strays)
    return list(running)


def kill(*processes: Process | Child) -> None:
    """End processes and their descendants at once by SIGKILL, as a power cut would."""
    _kill(processes, _families([_identity(process) for process in processes]))


def _kill(processes: Sequence[Process | Child], family: set[psutil.Process]) -> None:
    """Kill a family, and those that its members start in the meantime."""
    identities = [_identity(process) for process in processes]
    while family:
        _signal(family, signal.SIGKILL)
        if not _await_end(family, KILL_SECONDS):
            break
        family = _families(identities)
    for process in processes:
        if isinstance(process, Child):
            process.wait()


def _identity(process: Process | Child) -> Process:
    return process.identity if isinstance(process, Child) else process


def _families(identities: Iterable[Process]) -> set[psutil.Process]:
    return {member for identity in identities for member in identity.family()}


def _mark_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return ""


def _parent_of(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _await_end(processes: Collection[psutil.Process], seconds: float) -> bool:
    """Wait until all have ended, and return whether they have; reap no child of others."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _do_nothing(number: int, frame: object) -> None:
    """Let a signal pass. Python complains of one that came before it was set to be ignored."""


def _hear_ctrl_c() -> None:
    """In the child: react to SIGINT even if this process ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_with_parent() -> None:
    """In a child process: ask the kernel for a SIGTERM when the parent dies (Linux only)."""
    _hear_ctrl_c()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def name_process(name: str) -> None:
    """Let ``ps`` and ``top`` show this process by the first 15 letters of a name (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
