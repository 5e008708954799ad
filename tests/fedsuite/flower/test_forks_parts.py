"""The parts of the server of forks, each in this process; :mod:`test_forks` has it as a whole."""

from __future__ import annotations

import io
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedsuite.flower import forks
from fedsuite.flower.compat import INSTALLS
from fedsuite.flower.forks import CLIENT_TASK, SUPEREXEC, Forked, ForkServer

pytestmark = pytest.mark.skipif(not forks.can_fork(), reason="this system forks no such processes")
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


class Ended(BaseException):
    """What takes the place of the end of a process."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What a fork would do to its process, noted instead."""
    done: dict[str, list[Any]] = {}

    def note(name: str, result: Any = None) -> Callable[..., Any]:
        def noted(*values: Any, **named: Any) -> Any:
            done.setdefault(name, []).append(values)
            return result

        return noted

    def end(status: int) -> None:
        done.setdefault("end", []).append((status,))
        raise Ended

    monkeypatch.setattr(os, "setsid", note("setsid"))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(signal, "signal", note("signal"))
    monkeypatch.setattr(threading, "_shutdown", note("threads"), raising=False)
    monkeypatch.setattr("atexit._run_exitfuncs", note("registered"))
    monkeypatch.setattr(forks, "name_process", note("name"))
    monkeypatch.setattr(forks, "end_with_parent", note("ends with parent"))
    monkeypatch.setattr(forks, "PACKAGES", ("a_package_of_ours",))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return done


@pytest.fixture
def served(here: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A server in a thread, whose forks are all this process."""
    monkeypatch.setattr(forks, "console_script", {"program": print}.__getitem__)
    monkeypatch.setattr(os, "fork", os.getpid)
    server = ForkServer()
    thread = threading.Thread(target=server._serve)
    thread.start()
    yield server
    server._ours.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_request_is_answered_by_the_forks_number(
    served: ForkServer, here: dict[str, list[Any]]
) -> None:
    for _ in range(2):
        child = served.popen(["program"])
        assert isinstance(child, Forked)
        assert child.pid == os.getpid()
    assert here["name"] == [(forks.SERVER_NAME,)]
    assert [number for number, _ in here["signal"]] == [signal.SIGCHLD]


def test_what_cannot_be_forked_is_started(
    served: ForkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    child = served.popen([sys.executable, "-c", ""])
    assert isinstance(child, subprocess.Popen)
    assert child.wait() == 0
    assert isinstance(served.popen(["program"]), Forked)


@pytest.mark.parametrize("parent", [os.getppid(), -1])
def test_the_server_serves_if_its_service_is_still_there(
    here: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch, parent: int
) -> None:
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(os, "getpid", lambda: parent)
    monkeypatch.setattr(ForkServer, "_serve", lambda server: here.setdefault("serve", []))
    with pytest.raises(Ended):
        ForkServer().fork()
    assert ("serve" in here) == (parent == os.getppid())
    assert here["end"] == [(1,)] and here["setsid"] and here["ends with parent"]


def test_a_server_that_fails_says_why(
    here: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(server: ForkServer) -> None:
        raise MemoryError("no room for a server")

    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(os, "getpid", os.getppid)
    monkeypatch.setattr(ForkServer, "_serve", fails)
    server = ForkServer()
    with pytest.raises(Ended):
        server.fork()
    assert "MemoryError: no room for a server" in capsys.readouterr().err
    assert here["end"] == [(1,)]
    assert server._ours.fileno() == -1, "it could ask itself"


def test_the_service_keeps_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: 1)
    server = ForkServer()
    server.fork()
    assert server._its.fileno() == -1
    with pytest.raises(OSError):
        server._ours.send(b"nobody is there")


@pytest.mark.parametrize(("silent", "session"), [(True, False), (False, True)])
def test_a_fork_becomes_its_program(
    here: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch, silent: bool, session: bool
) -> None:
    seen: list[Any] = []

    def program() -> int:
        seen.append([*sys.argv, "a_package_of_ours.app" in sys.modules])
        return 3

    monkeypatch.setattr(forks, "console_script", {"program": program}.__getitem__)
    monkeypatch.setattr(forks, "_seed_anew", lambda: None)
    monkeypatch.setitem(sys.modules, "a_package_of_ours.app", os)
    silenced: list[int] = []
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(os, "dup2", lambda _, output: silenced.append(output))
        forks._run(["program", "x"], silent=silent, session=session)
    assert silenced == ([1, 2] if silent else [])
    assert seen == [["program", "x", False]]
    assert not hasattr(sys.modules["__main__"], "__file__")
    assert here["name"] == [("program",)] and here["end"] == [(3,)]
    assert here["threads"] and here["registered"]
    assert ("setsid" in here) == session


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("fedsuite.flower.forks.name_process", 1),
        ("threading._shutdown", 3),
        ("atexit._run_exitfuncs", 3),
        ("fedsuite.flower.forks._flush", 3),
    ],
)
def test_what_fails_before_or_after_the_program_is_printed_and_the_rest_is_done(
    here: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    status: int,
) -> None:
    def fails(*given: Any) -> None:
        raise SystemExit("this went wrong")

    done = here.setdefault("flush", [])
    monkeypatch.setattr(forks, "console_script", {"program": lambda: 3}.__getitem__)
    monkeypatch.setattr(forks, "_flush", lambda: done.append("flushed"))
    monkeypatch.setattr(place, fails)
    with pytest.raises(Ended):
        forks._run(["program"], silent=False, session=False)
    assert "SystemExit: this went wrong" in capsys.readouterr().err
    assert here["end"] == [(status,)]
    left_out = {"_shutdown": "threads", "_run_exitfuncs": "registered", "_flush": "flush"}
    for word, what in left_out.items():
        assert bool(here.get(what)) != place.endswith(word)


def test_forks_draw_numbers_of_their_own() -> None:
    import numpy as np
    import torch

    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        forks._seed_anew()
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
    torch.set_rng_state(kept[0])
    np.random.set_state(kept[1])
    random.setstate(kept[2])
    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_open_files_are_written(tmp_path: Path) -> None:
    proxy = weakref.proxy(Ended())  # of what is gone
    with (tmp_path / "log").open("w") as file:
        file.write("a line")
        forks._flush()
        assert (tmp_path / "log").read_text() == "a line"
    with pytest.raises(ReferenceError):
        assert isinstance(proxy, str)


def test_an_output_that_is_closed_or_gone_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    for output in (closed, None):
        monkeypatch.setattr(sys, "stdout", output)
        forks._flush()
    assert capsys.readouterr().err == ""


def test_tasks_need_more_than_services(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(forks, "console_script", lambda name: imported.append(name))
    monkeypatch.setattr(forks, "import_module", imported.append)
    monkeypatch.setattr(forks, "NEEDED_BY_TASKS", ("torch",))
    server = ForkServer()
    for words in ([SUPEREXEC], [CLIENT_TASK], [CLIENT_TASK, INSTALLS]) * 2:
        server._import_for(words)
    assert imported == [SUPEREXEC, CLIENT_TASK, "torch", CLIENT_TASK]


def test_all_children_that_have_ended_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [(5, 0), (6, 0), (0, 0)]
    monkeypatch.setattr(os, "waitpid", lambda pid, how: waiting.pop(0))
    forks._reap(signal.SIGCHLD, None)
    assert not waiting

    def childless(pid: int, how: int) -> tuple[int, int]:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", childless)
    forks._reap(signal.SIGCHLD, None)


def test_a_fork_is_ended_and_waited_for_by_its_number_and_start() -> None:
    child = subprocess.Popen(SLEEP)
    fork = Forked(child.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    fork.terminate()
    assert child.wait() == -signal.SIGTERM
    fork.wait()
    fork.terminate()
    Forked(child.pid).terminate()
    Forked(child.pid).wait()


def test_another_process_of_the_same_number_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen(SLEEP)
    try:
        fork = Forked(child.pid)
        assert fork._process is not None
        monkeypatch.setattr(fork._process, "_ident", (child.pid, 1.0))  # it started long ago
        fork.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        assert psutil.pid_exists(child.pid)
    finally:
        child.kill()
        child.wait()
