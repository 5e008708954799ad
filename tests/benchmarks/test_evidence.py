"""The commands that the evidence quotes are runs that the benchmark makes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence import BLOCKS
from fedsuite.cli.run import read_settings
from fedsuite.config import parse

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "papers.md"
COMMANDS = re.findall(r"^fedsuite run (\w+) (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
PLACES = {"data-root", "results-dir", "run-name"}


def resolved(values: dict[str, Any]) -> dict[str, Any]:
    settings = parse(values, foreign="ignore", idle="reset").flat().items()
    return {name: value for name, value in settings if name not in PLACES}


def made(block: str) -> list[dict[str, Any]]:
    return [resolved(settings) for settings in BLOCKS[block].runs(block).values()]


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    return [run for block in BLOCKS for run in made(block)]


@pytest.mark.parametrize(("algo", "rest"), COMMANDS)
def test_a_quoted_command_is_one_of_the_runs(
    runs: list[dict[str, Any]], algo: str, rest: str
) -> None:
    assert resolved({"algo": algo} | read_settings([], shlex.split(rest))) in runs


def test_fedbacs_checks_are_of_the_printed_form() -> None:
    """What the page says of them holds without a floor."""
    floors = [run["fedbac.floor"] for run in made("fedbac-checks") if run["algo"] == "fedbac"]
    assert floors == [0.0, 0.0]
