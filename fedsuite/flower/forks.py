"""Flower's processes as forks of one that has imported what they need.

Flower starts a process for each message to a ClientApp, and for each run. Each of them imports
Flower and PyTorch, seconds in which small models train for many rounds. So a service that the guard
starts forks a server of itself while it has a single thread; what Flower would start as a program
from then on is forked from that server, which imports PyTorch with the first task.

A fork runs the program that Flower names, as its console script does, and loads the app's modules
from where Flower put them: those of this installation are forgotten first. It can ask the server
for processes of its own only if it is a SuperExec, which starts tasks.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, NoReturn, cast

import psutil

from fedsuite.core.imports import quick_imports
from fedsuite.core.installation import PACKAGES
from fedsuite.core.processes import end_with_parent, name_process
from fedsuite.flower.compat import INSTALLS

SUPEREXEC, CLIENT_TASK = "flower-superexec", "flwr-clientapp"
TASKS = (CLIENT_TASK, "flwr-serverapp")
# Simulations import PyTorch beside other work of theirs, and are one per service.
NEEDED_BY_TASKS = ("torch", "safetensors.torch", "greenlet", "psutil", "httpcore")
REQUEST_BYTES, REQUEST_SOCKETS, ANSWER_BYTES = 1 << 16, 2, 32
SERVER_NAME = "fedsuite-forks"
BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def can_fork() -> bool:
    """Return whether this system can fork a process that has imported PyTorch."""
    return sys.platform == "linux"


class ForkServer:
    """A server that starts commands of Flower as forks of this process."""

    def __init__(self) -> None:
        self._ours, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._imported: set[tuple[str, ...]] = set()

    def fork(self) -> None:
        """Fork the server, which ends with this process.

        To be called while this process has one thread and no connections. (NumPy's OpenBLAS has
        threads of its own, which it ends before a fork.) What this process has changed of Flower
        by then is changed in all forks.
        """
        parent = os.getpid()
        if os.fork():
            self._its.close()
            return
        try:
            with _told():
                self._ours.close()
                os.setsid()  # Ctrl-C in a terminal is for the service, which ends tasks in order
                end_with_parent()
                if os.getppid() == parent:
                    self._serve()
        finally:
            os._exit(1)

    def popen(
        self,
        command: Sequence[str],
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
    ) -> Forked | subprocess.Popen[bytes]:
        """Start a command as ``subprocess.Popen`` does; by that if the server has ended."""
        silent = stdout == stderr == subprocess.DEVNULL
        request = {"command": list(command), "silent": silent, "session": start_new_session}
        ours, its = socket.socketpair()
        with ours, its, suppress(OSError):
            sent = [its, self._ours] if command[0] == SUPEREXEC else [its]
            numbers = [connection.fileno() for connection in sent]
            socket.send_fds(self._ours, [json.dumps(request).encode()], numbers)
            its.close()
            if pid := ours.recv(ANSWER_BYTES):
                return Forked(int(pid))
        return subprocess.Popen(
            command, stdout=stdout, stderr=stderr, start_new_session=start_new_session
        )

    def _serve(self) -> None:
        """Answer requests, until the service and its SuperExec have ended."""
        name_process(SERVER_NAME)
        signal.signal(signal.SIGCHLD, _reap)
        while True:
            data, sockets, _, _ = socket.recv_fds(self._its, REQUEST_BYTES, REQUEST_SOCKETS)
            if not data:
                return
            with _told():  # whoever asked starts a process then
                self._answer(data, sockets)
            for number in sockets:
                os.close(number)

    def _answer(self, data: bytes, sockets: Sequence[int]) -> None:
        """Fork a process, and tell its number by the first of some sockets.

        The second is the one for requests, if the process may make some.
        """
        if not sockets:
            raise OSError("A request came without its socket: too many files are open.")
        answer, *requests = sockets
        request = json.loads(data)
        command = [str(word) for word in request["command"]]
        self._import_for(command)
        if pid := os.fork():
            with suppress(OSError):  # nobody is waiting any more
                os.write(answer, str(pid).encode())
            return
        try:
            with _told():
                self._its.close()
                os.close(answer)
                for number in requests:
                    os.set_inheritable(number, False)
                    self._ours = socket.socket(fileno=number)
                _run(command, silent=request["silent"], session=request["session"])
        finally:
            os._exit(1)

    def _import_for(self, command: Sequence[str]) -> None:
        """Import what a command and its app need, the first time that it is asked for.

        PyTorch is imported only if the app cannot have its own.
        """
        task = command[0] in TASKS and INSTALLS not in command
        needed = (command[0], *(NEEDED_BY_TASKS if task else ()))
        if needed in self._imported:
            return
        with quick_imports():
            console_script(command[0])
            for module in needed[1:]:
                import_module(module)
        self._imported.add(needed)


class Forked:
    """A process that the server has forked, with what Flower needs of ``subprocess.Popen``.

    It is known by its start too: once it has ended, another process may get its number.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def terminate(self) -> None:
        """Send it SIGTERM, if it is still there."""
        if self._process:
            with suppress(psutil.NoSuchProcess):
                self._process.terminate()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if self._process:
            try:
                self._process.wait(timeout)
            except psutil.TimeoutExpired:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            except psutil.NoSuchProcess:
                return


@cache
def console_script(name: str) -> Callable[[], Any]:
    """Return what a command of Flower calls."""
    (script,) = entry_points(group="console_scripts", name=name)
    return cast(Callable[[], Any], script.load())


def _reap(number: int, frame: object) -> None:
    """Take note of all forks that have ended, so that none of them stays a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@contextmanager
def _told() -> Iterator[None]:
    """Print what is raised in a block, also if it would end a program, and go on after it."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            traceback.print_exc()


def _run(command: list[str], *, silent: bool, session: bool) -> NoReturn:
    """Be in a fork what a program of Flower is.

    It ends as a forked process of Python's own ``multiprocessing`` does: threads are waited for,
    what is registered for the end is called, and what Python's files have buffered is written. What
    else Python does at the end of a program would write to all memory that is shared with the
    server, and so copy it: seconds. So nothing else is finalised: the file of a
    ``NamedTemporaryFile`` that is still open stays, and what the C library has buffered is lost.
    """
    status = 1
    try:
        with _told():
            _prepare(command, silent=silent, session=session)
            status = _status(console_script(command[0]))
        with _told():
            threading._shutdown()  # type: ignore[attr-defined]
        with _told():
            atexit._run_exitfuncs()
        with _told():
            _flush()
    finally:
        os._exit(status)


def _prepare(command: list[str], *, silent: bool, session: bool) -> None:
    """Give a fork what a new process has: name, signals, output, modules, random numbers."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name_process(command[0])
    if session:
        os.setsid()
    if silent:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):
            os.dup2(nowhere, output)
    for name in [*sys.modules]:
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    _seed_anew()
    sys.argv = command


def _seed_anew() -> None:
    """Give the generators that others share a seed of their own, as each program has."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    for name in ("random", "numpy.random"):
        if generators := sys.modules.get(name):
            generators.seed()


def _flush() -> None:
    """Write what is buffered for the output, and for files that the program has left open.

    Their types are asked what they are: a weak proxy of what is gone fails at any question.
    """
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with _told():
            if stream and not getattr(stream, "closed", False):
                stream.flush()
    for thing in gc.get_objects():
        if issubclass(type(thing), BUFFERED):
            with suppress(OSError, ValueError):
                thing.flush()


def _status(program: Callable[[], Any]) -> int:
    """Run a program; return the exit status that Python would give it."""
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1
