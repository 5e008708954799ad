"""Processes are found again by pid and start time, and end with all their descendants."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedsuite.core.processes import (
    INTERRUPTED,
    TERMINATED,
    Child,
    Process,
    kill,
    start,
    stop,
)


def await_true(happened: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start_and_hear(command: list[str], log: Path) -> tuple[Child, str]:
    """Start a command and wait for its first line of output."""
    with log.open("wb") as output:
        child = start(command, output=output)
    assert await_true(lambda: log.read_text().endswith("\n"))
    return child, log.read_text()


def start_script(script: str, log: Path) -> tuple[Child, str]:
    return start_and_hear(["sh", "-c", script], log)


def test_exit_statuses_are_those_of_shells() -> None:
    assert (INTERRUPTED, TERMINATED) == (130, 143)


def test_a_recycled_pid_is_never_signalled() -> None:
    child = start(["sleep", "60"])
    stale = dataclasses.replace(child.identity, started=child.identity.started - 60, mark="gone")
    try:
        assert child.identity.is_running() and not stale.is_running()
        assert stop(stale) == [] and child.identity.is_running()
    finally:
        assert stop(child) == [child.identity]
    assert not child.identity.is_running() and child.returncode == -signal.SIGTERM


@pytest.mark.slow
def test_a_process_that_ignores_the_first_signal_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while true; do sleep 1; done"
    child, _ = start_script(script, tmp_path / "log")
    started = time.monotonic()
    assert stop(child, grace=0.3) == [child.identity]
    assert child.returncode == -signal.SIGKILL
    assert time.monotonic() - started > 0.3


def test_the_first_signal_is_heard_even_if_this_process_ignores_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        script = "trap 'exit 7' INT; echo ready; sleep 60 & wait"
        child, _ = start_script(script, tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    stop(child, first=signal.SIGINT)
    assert child.returncode == 7


@pytest.mark.slow
def test_descendants_end_too_even_orphans_in_sessions_of_their_own(tmp_path: Path) -> None:
    script = "setsid sh -c 'trap \"\" TERM; sleep 60' & echo $!; sleep 60"
    child, said = start_script(script, tmp_path / "log")
    psutil.Process(child.pid).kill()
    assert await_true(lambda: not child.identity.is_running()) and not has_ended(int(said))
    assert stop(child) == []
    assert has_ended(int(said))


@pytest.mark.slow
def test_a_family_includes_the_families_that_its_members_start(tmp_path: Path) -> None:
    """A member that uses :func:`start` itself; a mark of its own begins another family."""
    source = (
        "import time; from fedsuite.core.processes import start;"
        "print(start(['sleep', '60']).pid, start(['sleep', '60'], mark='other').pid, flush=True);"
        "time.sleep(60)"
    )
    child, said = start_and_hear([sys.executable, "-c", source], tmp_path / "log")
    mine, other = map(int, said.split())
    try:
        assert {p.pid for p in child.identity.family()} == {child.pid, mine}
        kill(child)
        assert has_ended(child.pid) and has_ended(mine)
    finally:
        kill(Process("other", other, 0.0, "other"))


@pytest.mark.slow
def test_a_member_that_hides_its_mark_ends_with_its_parents_family(tmp_path: Path) -> None:
    """``env -i`` takes the environment away, as a process does that sets its own title."""
    script = "env -i sh -c 'trap \"\" TERM; sleep 60' & echo $!; sleep 60"
    child, said = start_script(script, tmp_path / "log")
    assert int(said) in {member.pid for member in child.identity.family()}
    assert stop(child) == [child.identity]
    assert has_ended(int(said))


def test_a_child_ends_with_its_parent_unless_it_outlives_it() -> None:
    source = (
        "import os; from fedsuite.core.processes import start;"
        "print(start(['sleep', '60']).pid,"
        " start(['sleep', '60'], mark='outlives', outlives_parent=True).pid, flush=True);"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    bound, free = map(int, done.stdout.split())
    try:
        assert await_true(lambda: has_ended(bound))
        assert not has_ended(free)
    finally:
        kill(Process("free", free, 0.0, "outlives"))
    assert has_ended(free)


def test_a_process_is_found_again_by_the_text_of_its_identity() -> None:
    current = Process.current()
    assert current.pid == os.getpid()
    assert Process.from_text(current.to_text()) == current
    assert Process.from_text(current.to_text()).is_running()
    assert not Process.from_text(f"{os.getpid()}@12.5").is_running()


@pytest.mark.parametrize(
    ("seconds", "same"), [(0.0, True), (1.5, True), (-1.5, True), (2.5, False)]
)
def test_start_times_are_the_same_within_two_seconds(seconds: float, same: bool) -> None:
    """What the system says of a start time differs a little from call to call."""
    current = Process.current()
    other = dataclasses.replace(current, started=current.started + seconds)
    assert other.is_running() == Process.is_current(other.to_text()) == same
    assert not Process.is_current(f"{os.getppid()}@{current.started + seconds}")


def test_a_process_without_a_mark_has_no_family() -> None:
    assert Process.current().family() == []


def test_a_family_has_its_mark_and_not_one_that_begins_like_it() -> None:
    one, other = (start(["sleep", "60"], mark=mark) for mark in ("mutual", "mutual2"))
    try:
        assert [member.pid for member in one.identity.family()] == [one.pid]
        kill(one)
        assert has_ended(one.pid) and not has_ended(other.pid)
        assert one.returncode == -signal.SIGKILL
    finally:
        kill(other)


def test_descendants_that_outlive_their_process_get_a_signal_of_their_own(tmp_path: Path) -> None:
    stray = "trap 'echo heard; exit' TERM; echo ready; while :; do sleep 60 & wait; done"
    child, _ = start_script(f'sh -c "{stray}" & sleep 60', tmp_path / "log")
    assert stop(child) == [child.identity] and not child.identity.family()
    assert (tmp_path / "log").read_text() == "ready\nheard\n"


def test_a_child_has_the_environment_folder_and_streams_it_is_given(tmp_path: Path) -> None:
    """Its input is empty, and what it says of errors goes where its output goes."""
    environment = {"PATH": os.environ["PATH"], "GIVEN": "one"}
    script = "pwd; echo $GIVEN $MISSING; cat; echo wrong >&2"
    with (tmp_path / "log").open("wb") as output:
        child = start(["sh", "-c", script], environment, name="talker", cwd=tmp_path, output=output)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    assert child.wait(30) == 0 and child.identity.name == "talker"
    assert (tmp_path / "log").read_text() == f"{tmp_path}\none\nwrong\n"
