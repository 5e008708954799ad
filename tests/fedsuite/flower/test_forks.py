"""What Flower starts as forks: each is what the program would be, and none is left behind.

A process forks well while it has one thread, so each test is a small program of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal

from fedsuite.flower import forks
from fedsuite.flower.compat import INSTALLS, start_processes_with
from fedsuite.flower.forks import ForkServer, can_fork

ROOT = Path(__file__).parents[3]
SECONDS = 60.0
TASK = "flwr-clientapp"
BEFORE = """\
import atexit, json, os, signal, subprocess, sys, threading, time
import psutil
from fedsuite.flower import forks
from fedsuite.flower.forks import Forked, ForkServer

def load(name):
    assert name in programs, f"no program {name}"
    return programs[name]

def start(name, *words, **how):
    child = server.popen([name, *words], **how)
    assert isinstance(child, Forked)
    return child

def say(what):
    print(json.dumps(what), flush=True)

def gone(process):
    psutil.wait_procs([process], timeout=30)
    return not process.is_running()

forks.console_script = load
server = ForkServer()
"""
needs_forks = pytest.mark.skipif(not can_fork(), reason="this system forks no such processes")


def answers(script: str) -> list[Any]:
    """Run a program of the test; return what it has said, by line."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@needs_forks
def test_a_fork_is_what_the_program_would_be() -> None:
    (said,) = answers(
        """
def program():
    ours = [name for name in sys.modules if name.partition(".")[0] in forks.PACKAGES]
    say({
        "argv": sys.argv,
        "leads a session": os.getsid(0) == os.getpid(),
        "our modules": ours,
        "Ctrl-C": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "children": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "name": psutil.Process().name(),
        "threads": threading.active_count(),
    })

programs = {"program": program}
server.fork()
start("program", "--token", "x", start_new_session=True).wait()
"""
    )
    assert said == {
        "argv": ["program", "--token", "x"],
        "leads a session": True,
        "our modules": [],
        "Ctrl-C": True,
        "children": True,
        "name": "program",
        "threads": 1,
    }


@needs_forks
def test_a_fork_ends_as_a_program_does() -> None:
    """Its threads are waited for, then what it has registered runs, and what it printed is seen."""
    said = answers(
        """
def program():
    atexit.register(lambda: print('"registered"'))
    def late():
        time.sleep(0.2)
        print('"thread"')
    threading.Thread(target=late).start()
    print('"program"')
    sys.exit(3)

programs = {"program": program}
server.fork()
start("program").wait()
say("ended")
"""
    )
    assert said == ["program", "thread", "registered", "ended"]


@needs_forks
def test_what_a_program_has_not_written_yet_is_written() -> None:
    said = answers(
        """
def program():
    global file
    file = open(sys.argv[1], "w")
    file.write("a line of a log")

import tempfile
programs = {"program": program}
server.fork()
with tempfile.NamedTemporaryFile("r") as kept:
    start("program", kept.name).wait()
    say(kept.read())
"""
    )
    assert said == ["a line of a log"]


@needs_forks
def test_a_fork_says_nothing_if_asked_and_ctrl_c_is_not_for_it() -> None:
    """A terminal sends it to all of a session; the service ends its tasks in order."""
    said = answers(
        """
def program():
    print("nothing of this is seen")
    print("nor of this", file=sys.stderr)
    open(sys.argv[1], "w").write(str(os.getsid(0)))

import tempfile
programs = {"program": program}
server.fork()
with tempfile.NamedTemporaryFile("r") as file:
    start("program", file.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()
    say(int(file.read()) != os.getsid(0))
"""
    )
    assert said == [True]


@needs_forks
def test_forks_do_not_draw_the_same_numbers() -> None:
    one, other = answers(
        f"""
def program():
    import random
    torch, numpy = sys.modules["torch"], sys.modules["numpy"]
    say([torch.rand(1).item(), numpy.random.rand(), random.random()])

programs = {{"{TASK}": program}}
forks.NEEDED_BY_TASKS = ("torch", "numpy.random", "random")
server.fork()
start("{TASK}").wait()
start("{TASK}").wait()
"""
    )
    assert all(mine != yours for mine, yours in zip(one, other, strict=True))


@needs_forks
def test_what_tasks_need_is_imported_once_before_them() -> None:
    """And only for them: a SuperExec starts without PyTorch, and a task without this one's if its
    app may bring another.
    """
    said = answers(
        f"""
def program():
    say("mailbox" in sys.modules)

programs = {{"flower-superexec": program, "{TASK}": program}}
forks.NEEDED_BY_TASKS = ("mailbox",)
server.fork()
start("flower-superexec").wait()
start("{TASK}", "{INSTALLS}").wait()
start("{TASK}").wait()
say("mailbox" in sys.modules)
"""
    )
    assert said == [False, False, True, False]


@needs_forks
def test_forks_leave_no_zombies_and_their_cpu_time_is_known() -> None:
    said = answers(
        """
def program():
    while time.process_time() < 0.3:
        pass

programs = {"program": program}
server.fork()
(its,) = psutil.Process().children()
for _ in range(2):
    start("program").wait()
say(its.name())
deadline = time.monotonic() + 30
while its.children() and time.monotonic() < deadline:
    time.sleep(0.01)
say(its.children() == [])
say(its.cpu_times().children_user + its.cpu_times().children_system > 0.3)
"""
    )
    assert said == [forks.SERVER_NAME, True, True]


@needs_forks
def test_a_fork_can_be_waited_for_and_ended() -> None:
    said = answers(
        """
programs = {"program": lambda: time.sleep(60)}
server.fork()
child = start("program")
try:
    child.wait(timeout=0.05)
except subprocess.TimeoutExpired:
    say("still there")
child.terminate()
child.wait(timeout=30)
say(psutil.pid_exists(child.pid))
child.terminate()  # of one that has ended: nothing happens
child.wait()
"""
    )
    assert said == ["still there", False]


@needs_forks
def test_the_server_ends_with_its_service() -> None:
    said = answers(
        """
programs = {}
ours, its = os.pipe()
if service := os.fork():
    server_process = psutil.Process(int(os.read(ours, 20)))
    say(server_process.is_running())
    os.kill(service, signal.SIGKILL)
    os.waitpid(service, 0)
    say(gone(server_process))
else:
    server.fork()
    (child,) = psutil.Process().children()
    os.write(its, str(child.pid).encode())
    time.sleep(60)
"""
    )
    assert said == [True, True]


@needs_forks
def test_without_the_server_processes_start_as_ever() -> None:
    said = answers(
        """
programs = {}
server.fork()
(its,) = psutil.Process().children()
its.kill()
its.wait()
for _ in range(2):
    child = server.popen([sys.executable, "-c", "print(1)"])
    say(isinstance(child, subprocess.Popen))
    child.wait()
"""
    )
    assert said == [True, 1, True, 1]


@needs_forks
def test_a_request_that_fails_starts_a_process_and_the_next_one_forks() -> None:
    """The program cannot be imported, the request is too long, or nobody waits for the answer."""
    said = answers(
        """
import socket
programs = {"program": lambda: say("forked")}
server.fork()
for request in (["true"], ["true", "x" * 70_000]):
    child = server.popen(request, stderr=subprocess.DEVNULL)
    say(isinstance(child, subprocess.Popen))
    child.wait()
ours, its = socket.socketpair()
ours.close()
request = {"command": ["program"], "silent": True, "session": False}
socket.send_fds(server._ours, [json.dumps(request).encode()], [its.fileno()])
its.close()
start("program").wait()
"""
    )
    assert said == [True, True, "forked"]


def test_an_unknown_command_has_no_console_script() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        forks.console_script("flwr-nothing")


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [(None, 0, ""), (0, 0, ""), (7, 7, ""), ("No such run.", 1, "No such run.\n")],
)
def test_the_status_of_a_program(
    capsys: pytest.CaptureFixture[str], code: Any, status: int, words: str
) -> None:
    def ends() -> None:
        sys.exit(code)

    programs: tuple[Callable[[], Any], ...] = (ends, lambda: code)
    for program in programs:
        assert forks._status(program) == status
        assert capsys.readouterr().err == words


def test_the_status_of_a_program_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RuntimeError("the model is not there")

    assert forks._status(fails) == 1
    assert "RuntimeError: the model is not there" in capsys.readouterr().err


def test_flower_starts_its_processes_by_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SuperNode its SuperExec, and the SuperExec its tasks; other modules are left alone."""
    places: tuple[Any, ...] = (subprocess_executor, start_client_internal)
    for place in places:
        monkeypatch.setattr(place, "subprocess", subprocess)  # to be restored
    server = ForkServer()
    start_processes_with(server.popen, "flower-supernode")
    for place in places:
        assert place.subprocess.Popen == server.popen
        assert place.subprocess.DEVNULL == subprocess.DEVNULL
    assert subprocess.Popen != server.popen
