"""Keep the markers honest: a test outside the groups must not start what the groups are for.

Only what a test process starts itself is seen, and told by the command's first words. Files of the
groups come first, so that none of them is still running when all others are done.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any

import pytest

NEEDED = {
    "flwr": {"ray", "deploy"},
    "flower-superlink": {"ray", "deploy"},
    "flower-supernode": {"deploy"},
    "fedsuite": {"slow", "ray", "deploy"},
    "fedsuite.cli": {"slow", "ray", "deploy"},
    "docker": {"docker"},
    "podman": {"docker"},
    "podman-compose": {"docker"},
}
OURS = ("fedsuite", "fedsuite.cli")
STARTING = ("run", "resume", "suite", "deploy")  # our other commands only look, and are quick
WORDS = 5
FIRST = ("deploy", "ray", "slow")
start = subprocess.Popen.__init__


class Guard:
    """Watches the processes that tests start."""

    def __init__(self) -> None:
        self.markers: set[str] | None = None

    def check(self, command: Any) -> None:
        """Fail the test that is running if it lacks the marker that a command needs."""
        problem = "" if self.markers is None else complaint(command, self.markers)
        if problem:
            pytest.fail(problem)


guard = Guard()


def complaint(command: Any, markers: Iterable[str]) -> str:
    """Say which marker a test lacks to start a command; empty if none."""
    single = isinstance(command, str | bytes | PathLike)
    words: Sequence[Any] = [command] if single else list(command)
    for word, following in zip(words[:WORDS], [*words[1:], ""], strict=False):
        name = PurePath(str(fspath(word))).name
        needed = NEEDED.get(name, set())
        if name in OURS and following not in STARTING:
            continue
        if needed and not needed & set(markers):
            return f"a test that starts {name} needs one of the markers {', '.join(sorted(needed))}"
    return ""


def pytest_configure() -> None:
    """Look at every command before it starts."""

    def checked(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        guard.check(args)
        start(self, args, *rest, **options)

    subprocess.Popen.__init__ = checked  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests take longest, by their markers."""
    turns: dict[Path, int] = {}
    for item in items:
        mine = [turn for turn, name in enumerate(FIRST) if item.get_closest_marker(name)]
        turns[item.path] = min([turns.get(item.path, len(FIRST)), *mine])
    items.sort(key=lambda item: turns[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take the markers of the test to come, before its fixtures are made."""
    guard.markers = {marker.name for marker in item.iter_markers()}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Let fixtures of a module end what they started, whichever test was the last."""
    guard.markers = None
