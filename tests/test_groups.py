"""Tests outside the groups start neither Ray, nor Flower's services, nor containers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from groups import NEEDED, complaint, guard

ROOT = Path(__file__).parents[1]
GROUPS = {"slow", "ray", "deploy", "docker"}


@pytest.fixture(scope="module")
def service() -> Iterator[None]:
    """Something of a marked test that another command ends, after the last test of the module."""
    yield
    guard.check(["fedsuite", "deploy", "down"])


@pytest.mark.deploy
def test_a_service_may_outlive_the_marked_test(service: None) -> None:
    """Were it not so, the last test of this file would fail in its teardown."""


@pytest.mark.parametrize(
    "command",
    [
        ["/venv/bin/flower-superlink", "--insecure"],
        ["flwr", "run", "."],
        [sys.executable, "-m", "fedsuite.cli", "run", "fedavg"],
        ["docker", "compose", "version"],
        "flower-supernode",
    ],
)
def test_an_unmarked_test_that_starts_one_fails(command: Any) -> None:
    with pytest.raises(pytest.fail.Exception, match="needs one of the markers"):
        subprocess.Popen(command)


def test_a_marked_one_and_other_commands_may_start() -> None:
    assert not complaint(["flower-superlink"], {"ray"})
    assert not complaint([sys.executable, "fake_flwr.py"], ())
    assert complaint(["flower-supernode"], {"slow"})
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0


def test_the_groups_are_those_that_make_leaves_out() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    registered = {line.split(":")[0] for line in settings["ini_options"]["markers"]}
    (left_out,) = (
        line.partition(":= ")[2]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("FAST :=")
    )
    assert registered == GROUPS == set(left_out.replace("not ", "").split(" and "))
    assert GROUPS == set().union(*NEEDED.values())
