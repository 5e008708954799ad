"""Every algorithm has a page, and what the page says of settings and bytes is so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsuite import registry
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.settings import build, defaults
from fedsuite.core.vector import total_bytes
from strategies.base import BaseStrategy, RunInfo
from tasks.models import build_model
from tasks.shapes import DataShape

ROOT = Path(__file__).parents[2]
SHAPES = {"lenet": (1, 28, 28), "resnet18": (3, 32, 32)}
ALL = sorted(registry.ALGORITHMS)
# What they send depends on the number of clients or of epochs, or is not sent in the first round.
OTHERWISE = {"apple", "fedamp", "fedfomo", "feda4"}
ROW = re.compile(r"^\| (down|up) \|[^|]*\| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def page(algo: str) -> str:
    return (ROOT / "docs" / "algorithms" / f"{algo}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("algo", ALL)
def test_its_page_is_in_the_readme_and_on_the_site(algo: str) -> None:
    assert f"`fedsuite run {algo}`" in page(algo)
    assert f"[`{algo}`](docs/algorithms/{algo}.md)" in (ROOT / "README.md").read_text()
    assert f": algorithms/{algo}.md\n" in (ROOT / "mkdocs.yml").read_text()
    for section in ("## What is sent", "## When to use it", "Use it: ", "Not: "):
        assert section in page(algo)


@pytest.mark.parametrize("algo", ALL)
def test_its_settings_are_all_there_with_their_defaults(algo: str) -> None:
    rows = re.findall(rf"^\| `{re.escape(algo)}\.([\w-]+)` \| `([^`]*)` \|", page(algo), re.M)
    kind = registry.params(algo)
    assert dict(rows).keys() == defaults(kind).keys()
    assert build(kind, dict(rows), f"{algo}.") == kind()


@cache
def flat(name: str) -> FlatModel:
    return FlatModel(build_model(name, DataShape("image", SHAPES[name], 10), 0))


def sent_bytes(algo: str, name: str) -> dict[str, int]:
    """What a client receives and sends in the first round."""
    model = flat(name)
    info = RunInfo(num_clients=2, client_sizes={0: 1, 1: 1}, seed=0, shapes=model.shapes)
    strategy: BaseStrategy = registry.find(algo).strategy(info)
    strategy.model, strategy.buffers = model.vector(), model.buffer_vector()
    down: dict[str, Any] = strategy.broadcast() | strategy.instruction(0).arrays
    if strategy.shares_model:
        down |= {"model": strategy.model, "buffers": strategy.buffers}
    item = np.dtype(np.float32).itemsize
    return {"down": total_bytes(down), "up": item * sum(strategy._expected().values())}


@pytest.mark.parametrize("algo", [name for name in ALL if name not in OTHERWISE])
def test_the_bytes_are_those_of_the_first_round(algo: str) -> None:
    rows = ROW.findall(page(algo))
    said = {kind: [int(n.replace(",", "")) for n in numbers] for kind, *numbers in rows}
    assert said == {
        kind: [sent_bytes(algo, name)[kind] for name in SHAPES] for kind in ("down", "up")
    }
