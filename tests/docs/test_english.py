"""Phrases that were replaced by what the field writes do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("fedsuite", "strategies", "clients", "tasks", "sim_configs", "docs", "docker"),
    *("tests", "benchmarks", "faults", "mutants", "fuzz"),
)
SUFFIXES = (".py", ".md", ".toml", ".yml", ".sh")
COUNTED = (
    "rows|samples|steps|batches|epochs|gradients|models|clients?|bytes|seconds|messages|draws|"
    "factor|one|two|three|four|twice"
)
OLD = (
    r"'[^' ]*' is not possible",
    r"go(es|ing)? on with (a|the) run",
    r"where the user stands",
    rf"\b({COUNTED}) an? (round|step|batch|epoch)\b",
    r"the column to learn\b(?! from)",
    r"take both back",
    r"\bless fedavg",
    r"what a run comes to",
    r"politely, then",
    r"has the bits of a simulation",
)


def sources() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        paths = (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
        yield from (path for path in paths if path != Path(__file__))


@cache
def text_of(path: Path) -> str:
    """Return a file's text with each paragraph, or comment, on one line."""
    return re.sub(r"\s*\n\s*(# )?", " ", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("old", OLD)
def test_a_replaced_phrase_occurs_nowhere(old: str) -> None:
    phrase = re.compile(old, re.IGNORECASE)
    found = {str(path.relative_to(ROOT)): phrase.search(text_of(path)) for path in sources()}
    assert not {name: match[0] for name, match in found.items() if match}


def test_what_is_replaced_is_found() -> None:
    phrases = (
        *("a few batches a round", "two gradients a step", "half of the clients a round"),
        *("x = 'y' is not possible", "the column to learn", "Politely, then for good"),
    )
    assert all(any(re.search(old, p, re.IGNORECASE) for old in OLD) for p in phrases)
    assert not any(re.search(old, "clients of a round; a client as a batch") for old in OLD)
