"""The server of forks: it answers all requests, keeps none of them, and ends with its service."""

from __future__ import annotations

from forking import answers, finish, needs_forks

from fedsuite.flower.compat import INSTALLS
from fedsuite.flower.forks import CLIENT_TASK, SERVER_NAME, SUPEREXEC

pytestmark = needs_forks


def test_what_tasks_need_is_imported_once_before_them() -> None:
    """And only for them: a SuperExec starts without PyTorch, and a task without this one's if its
    app may bring another.
    """
    said = answers(
        f"""
def program():
    say("mailbox" in sys.modules)

programs = {{"{SUPEREXEC}": program, "{CLIENT_TASK}": program}}
forks.NEEDED_BY_TASKS = ("mailbox",)
server.fork()
start("{SUPEREXEC}").wait()
start("{CLIENT_TASK}", "{INSTALLS}").wait()
start("{CLIENT_TASK}").wait()
say("mailbox" in sys.modules)
"""
    )
    assert said == [False, False, True, False]


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
    assert said == [SERVER_NAME, True, True]


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


def test_the_server_ends_when_nobody_can_ask_it_any_more() -> None:
    said = answers(
        """
programs = {}
server.fork()
(its,) = psutil.Process().children()
server._ours.close()
say(gone(its))
"""
    )
    assert said == [True]


def test_a_superexec_can_ask_for_tasks_and_a_task_cannot() -> None:
    """Neither has a connection of others; what a SuperExec executes does not inherit its own."""
    (superexec, *task), *started = answers(
        f"""
import stat

def sockets():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    numbers = [n for n in numbers if os.path.exists(f"/proc/self/fd/{{n}}")]
    return [os.get_inheritable(n) for n in numbers if stat.S_ISSOCK(os.fstat(n).st_mode)]

def superexec():
    say([sockets(), os.getppid()])
    start("{CLIENT_TASK}").wait()

def task():
    say([sockets(), os.getppid()])
    child = server.popen([sys.executable, "-c", ""])
    say(isinstance(child, subprocess.Popen))
    child.wait()

programs = {{"{SUPEREXEC}": superexec, "{CLIENT_TASK}": task, sys.executable: print}}
forks.NEEDED_BY_TASKS = ()
server.fork()
start("{SUPEREXEC}").wait()
"""
    )
    assert superexec == [False]
    assert started == [[[], *task], True]


def test_many_requests_leave_nothing_behind() -> None:
    """Neither open files nor garbage that is never collected: to look up a command leaves some."""
    said = answers(
        """
def load_and_leave_garbage(name):
    for _ in range(20):
        garbage = []
        garbage.append(garbage)
    return load(name)

def program():
    say([gc.get_freeze_count(), len(os.listdir("/proc/self/fd"))])

programs = {"program": program}
forks.console_script = load_and_leave_garbage
server.fork()
(its,) = psutil.Process().children()
for _ in range(20):
    start("program").wait()
    say(its.num_fds())
"""
    )
    (frozen, *later), (inherited, *same) = zip(*said[::2], strict=True)
    assert len(later) == 19 and max(later) <= frozen
    assert {*same} == {inherited} and len({*said[1::2]}) == 1


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


def test_a_request_that_fails_starts_a_process_and_the_next_one_forks() -> None:
    """The program cannot be imported, or ends all, the request is too long, or nobody waits."""
    said, errors = finish(
        """
def load_or_leave(name):
    return sys.exit("not without my licence") if name == "false" else load(name)

programs = {"program": lambda: say("forked")}
forks.console_script = load_or_leave
server.fork()
for request in (["true"], ["false"], ["true", "x" * 70_000]):
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
    assert said == [True, True, True, "forked"]
    assert "no program true" in errors and "not without my licence" in errors


def test_a_server_with_too_many_open_files_says_so_and_goes_on() -> None:
    said, errors = finish(
        """
programs = {"true": lambda: say("forked")}
server.fork()
(its,) = psutil.Process().children()
start("true").wait()
soft, hard = its.rlimit(psutil.RLIMIT_NOFILE)
its.rlimit(psutil.RLIMIT_NOFILE, (1, hard))
child = server.popen(["true"])
say(isinstance(child, subprocess.Popen))
its.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
server._ours.send(b"{}")
start("true").wait()
"""
    )
    assert said == ["forked", True, "forked"]
    assert errors.count("OSError: A request came without its socket") == 2
