"""What makes a finished run stale, and what does not."""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsuite.config import parse
from fedsuite.suites import code_version as module
from fedsuite.suites.code_version import Sources, code_version, parse_module
from fedsuite.suites.jobs import run_key

LIBRARY = '''
"""A library."""
import logging
from dataclasses import dataclass
from fedsuite.core.settings import UserError, setting

log = logging.getLogger("x")
RATE = 0.5


@dataclass(frozen=True)
class Params:
    """Settings."""

    rate: float = setting(RATE, "how fast", low=0)


def scaled(value: float) -> float:
    """Scale."""
    if value < 0:
        raise UserError(f"{value} is negative.")
    log.info("scaling")
    return value * RATE  # the step
'''
USER = """
from fedsuite.scratch_library import Params, scaled


def use(value):
    return scaled(Params().rate + value)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A tree of sources of its own: one module that a run starts from, and a library."""
    (tmp_path / "fedsuite").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ROOTS", ("fedsuite.scratch_user",))
    write(tmp_path, scratch_library=LIBRARY, scratch_user=USER)
    yield tmp_path
    forget()


def forget() -> None:
    for name in ("code_version", "_path", "parse_module", "_text", "_names"):
        getattr(module, name).cache_clear()


def write(tree: Path, **sources: str) -> None:
    for name, source in sources.items():
        (tree / "fedsuite" / f"{name}.py").write_text(source)
    forget()


REWORDED = {
    "docstrings": ('"""Scale."""', '"""Multiply by the rate."""'),
    "comments": ("  # the step", "  # half of it"),
    "layout": ("return value * RATE", "return (\n        value\n        * RATE\n    )"),
    "error messages": ("is negative.", "must not be negative."),
    "log lines": ('log.info("scaling")', 'log.info("multiplying %s", value)'),
    "help texts": ('"how fast"', '"learning rate"'),
    "annotations": ("value: float) -> float", "value: int) -> int"),
    "what nothing reaches": ("RATE = 0.5", "RATE = 0.5\nOTHER = 3"),
}
CHANGED = {
    "a constant": ("RATE = 0.5", "RATE = 0.25"),
    "an operation": ("value * RATE", "value / RATE"),
    "a default": ("setting(RATE,", "setting(2 * RATE,"),
    "a limit": ("low=0", "low=1"),
    "a field's type": ("rate: float", "rate: int"),
    "a condition of an error": ("value < 0", "value < 1"),
}


@pytest.mark.parametrize("name", REWORDED)
def test_rewording_leaves_runs_valid(tree: Path, name: str) -> None:
    before = code_version("fedavg")
    write(tree, scratch_library=LIBRARY.replace(*REWORDED[name]))
    assert code_version("fedavg") == before


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_what_runs_makes_them_stale(tree: Path, name: str) -> None:
    before = code_version("fedavg")
    write(tree, scratch_library=LIBRARY.replace(*CHANGED[name]))
    assert code_version("fedavg") != before


def test_moving_code_to_another_module_leaves_runs_valid(tree: Path) -> None:
    before = code_version("fedavg")
    head, tail = LIBRARY.split("@dataclass(frozen=True)")
    cut = tail.index("def scaled")
    write(
        tree,
        scratch_library=head + tail[cut:],
        scratch_params=f"{head}\n@dataclass(frozen=True){tail[:cut]}",
        scratch_user=USER.replace("Params, scaled", "scaled").replace(
            "from", "from fedsuite.scratch_params import Params\nfrom", 1
        ),
    )
    assert code_version("fedavg") == before


def test_what_is_named_in_a_table_of_references_counts(tree: Path) -> None:
    table = 'TABLE = {"a": "fedsuite.scratch_library:scaled"}\n'
    write(tree, scratch_user=table)
    before = code_version("fedavg")
    write(tree, scratch_library=LIBRARY.replace("value * RATE", "value + RATE"))
    assert code_version("fedavg") != before


def test_an_algorithm_from_outside_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_method.py").write_text("from my_maths import step\nALGORITHM = step(1)\n")
    (tmp_path / "my_maths.py").write_text("def step(x):\n    return x\n")
    reached = Sources("my_method:ALGORITHM").reach()
    assert ("my_method", "ALGORITHM") in reached and ("clients.base", "Client") in reached
    before = code_version("my_method:ALGORITHM")
    forget()
    (tmp_path / "my_method.py").write_text("from my_maths import step\nALGORITHM = step(2)\n")
    assert code_version("my_method:ALGORITHM") != before
    forget()


def test_a_model_from_outside_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_model.py").write_text("WIDTH = 3\n\ndef build(shape):\n    return WIDTH\n")
    names: dict[str, Any] = {"model": "my_model:build", "partition": "my_model:build"}
    config = dataclasses.replace(parse({}), **names)
    assert ("my_model", "WIDTH") in Sources("fedavg", "my_model:build").reach()
    before = run_key(config)
    forget()
    (tmp_path / "my_model.py").write_text("WIDTH = 4\n\ndef build(shape):\n    return WIDTH\n")
    assert run_key(config) != before
    assert code_version("fedavg") != code_version("fedavg", "my_model:build")
    forget()


def test_the_content_of_a_file_counts_and_not_its_time(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("x,label\n1,a\n")
    config = parse({"dataset": str(file)})
    before = run_key(config)
    os.utime(file, (1, 1))
    assert run_key(config) == before
    file.write_text("x,label\n2,a\n")
    assert run_key(config) != before


def test_the_code_of_a_run_is_what_its_apps_and_its_algorithm_reach() -> None:
    reached = Sources("taco").reach()
    assert {
        ("strategies.base", "BaseStrategy"),
        ("strategies.taco", "correction_coefficients"),
        ("clients.base", "Client"),
        ("clients.freeloader", "Freeloader"),
        ("tasks.models", "build_model"),
        ("fedsuite.core.seeds", "generator"),
        ("fedsuite.nodes.simulated", "SimulatedNodes"),
        ("fedsuite.training.loop", "TrainingLoop"),
    } <= reached
    rooms = {".".join(found.split(".")[:2]) for found, _ in reached}
    assert not {"fedsuite.cli", "fedsuite.terminal", "fedsuite.report", "fedsuite.suites"} & rooms
    assert not {"strategies.feda4", "strategies.fedprox", "clients.fedprox"} & rooms


def test_algorithms_have_versions_of_their_own() -> None:
    assert len({code_version(algo) for algo in ("fedavg", "fedprox", "taco")}) == 3


def test_a_name_defined_twice_counts_twice() -> None:
    parsed = parse_module("if True:\n    pass\nA = 1\nA = 2\n")
    assert len(parsed.definitions["A"]) == 2
    assert isinstance(parsed.loose[0], ast.If)
