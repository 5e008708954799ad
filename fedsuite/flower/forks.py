"""Flower's processes as forks of one that has imported what they need.

Flower starts a process for each message to a ClientApp, and for each run. Each of them imports
Flower and PyTorch, seconds in which small models train for many rounds. So a service that the guard
starts forks a server of itself while it has a single thread; what Flower would start as a program
from then on is forked from that server, which imports PyTorch with the first task.

A fork runs the program that Flower names, as its console script does, and loads the app's modules
from where Flower put them: those of this installation are forgotten first.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NoReturn, cast

import psutil

from fedsuite.core.imports import quick_imports
from fedsuite.core.installation import PACKAGES
from fedsuite.core.processes import end_with_parent, name_process

CLIENT_TASK = "flwr-clientapp"
TASKS = (CLIENT_TASK, "flwr-serverapp")
# Simulations import PyTorch beside other work of theirs, and are one per service.
NEEDED_BY_TASKS = ("torch", "safetensors.torch", "greenlet", "psutil", "httpcore")
REQUEST_BYTES, ANSWER_BYTES = 1 << 16, 32
SERVER_NAME = "fedsuite-forks"


def can_fork() -> bool:
    """Return whether this system can fork a process that has imported PyTorch."""
    return sys.platform == "linux"


class ForkServer:
    """A server that starts commands of Flower as forks of this process."""

    def __init__(self) -> None:
        self._ours, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def fork(self) -> None:
        """Fork the server, which ends with this process.

        To be called while this process has one thread and no connections.
        """
        parent = os.getpid()
        if os.fork():
            self._its.close()
            return
        try:
            end_with_parent()
            if os.getppid() == parent:
                self._serve()
        except BaseException:
            traceback.print_exc()
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
            socket.send_fds(self._ours, [json.dumps(request).encode()], [its.fileno()])
            its.close()
            if pid := ours.recv(ANSWER_BYTES):
                return Forked(int(pid))
        return subprocess.Popen(
            command, stdout=stdout, stderr=stderr, start_new_session=start_new_session
        )

    def _serve(self) -> NoReturn:
        """Fork a process per request."""
        name_process(SERVER_NAME)
        signal.signal(signal.SIGCHLD, _reap)
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._its, REQUEST_BYTES, 1)
            request = json.loads(data)
            command = [str(word) for word in request["command"]]
            with quick_imports():
                console_script(command[0])
                for module in NEEDED_BY_TASKS if command[0] in TASKS else ():
                    import_module(module)
            with socket.socket(fileno=descriptors[0]) as answer:
                if pid := os.fork():
                    answer.send(str(pid).encode())
                    continue
            self._its.close()
            _run(command, silent=request["silent"], session=request["session"])


class Forked:
    """A process that the server has forked, with what Flower needs of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def terminate(self) -> None:
        """Send it SIGTERM, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        try:
            psutil.Process(self.pid).wait(timeout)
        except psutil.TimeoutExpired:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
        except psutil.NoSuchProcess:
            return


def console_script(name: str) -> Callable[[], Any]:
    """Return what a command of Flower calls."""
    (script,) = entry_points(group="console_scripts", name=name)
    return cast(Callable[[], Any], script.load())


def _reap(number: int, frame: object) -> None:
    """Take note of all forks that have ended, so that none of them stays a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _run(command: list[str], *, silent: bool, session: bool) -> NoReturn:
    """Be in a fork what a program of Flower is.

    It ends as a forked process of Python's own ``multiprocessing`` does. What else Python does at
    the end of a program would write to all memory that is shared with the server, and so copy it:
    seconds.
    """
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
    sys.argv, status = command, 1
    try:
        status = _status(console_script(command[0]))
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(status)


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
