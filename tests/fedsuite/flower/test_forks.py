"""What Flower starts as forks: each is what the program would be, and ends as it would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal
from forking import answers, needs_forks

from fedsuite.flower import forks
from fedsuite.flower.compat import start_processes_with
from fedsuite.flower.forks import CLIENT_TASK, SUPEREXEC, ForkServer


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
    """Also if it leaves a weak proxy of what is gone, of which one can ask nothing."""
    said = answers(
        """
def program():
    global file, proxy
    proxy = weakref.proxy(type("Gone", (), {})())
    file = open(sys.argv[1], "w")
    file.write("a line of a log")
    print('"printed"')
    sys.stdout = io.StringIO()

import tempfile, weakref
programs = {"program": program}
server.fork()
with tempfile.NamedTemporaryFile("r") as kept:
    start("program", kept.name).wait()
    say(kept.read())
"""
    )
    assert said == ["printed", "a line of a log"]


@needs_forks
def test_a_service_is_guarded_and_the_apps_of_its_tasks_are_not() -> None:
    """Its SuperExec is a fork, and tasks are forks that the SuperExec has asked for."""
    said = answers(
        f"""
import uvicorn
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal
from fedsuite.flower import guard

async def app(scope, receive, send):
    pass

def is_guarded():
    config = uvicorn.Config(app)
    config.load()
    return getattr(config.loaded_app, "__qualname__", "") == guarded

def fork_by(place, name):
    child = place.subprocess.Popen([name])
    say([name, isinstance(child, Forked)])
    child.wait()

programs = {{
    "flower-supernode": lambda: say(is_guarded()) or fork_by(start_client_internal, "{SUPEREXEC}"),
    "{SUPEREXEC}": lambda: fork_by(subprocess_executor, "{CLIENT_TASK}"),
    "{CLIENT_TASK}": lambda: say(is_guarded()),
}}
guarded = guard.own_user_only(app).__qualname__
guard.console_script = load
guard.exposure = str
forks.NEEDED_BY_TASKS = ()
guard.main(["flower-supernode"])
"""
    )
    assert said[0] is True
    assert sorted(said[1:], key=str) == [False, [SUPEREXEC, True], [CLIENT_TASK, True]]


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

programs = {{"{CLIENT_TASK}": program}}
forks.NEEDED_BY_TASKS = ("torch", "numpy.random", "random")
server.fork()
start("{CLIENT_TASK}").wait()
start("{CLIENT_TASK}").wait()
"""
    )
    assert all(mine != yours for mine, yours in zip(one, other, strict=True))


def test_a_command_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = forks.console_script("flower-superexec")
    monkeypatch.setattr(forks, "entry_points", lambda **wanted: ())
    assert forks.console_script("flower-superexec") is found


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
