"""Follow a page that adds something to the project, to the letter, in a copy of the tree.

A block of code with a path as its title is a new file. A block in the language ``diff`` changes the
file of that path: lines with a minus go, lines with a plus come, the others say where; ``@@`` parts
two places. A place must occur exactly once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r'^```(?P<language>\w+) title="(?P<title>[^"]+)"\n(?P<text>.*?)^```$', re.M | re.S
)
PARTS = ("fedsuite", "strategies", "clients", "tasks", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Block:
    """A titled block of code."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the titled blocks of a page."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["title"], match["text"]) for match in found]


def copy_tree(target: Path) -> Path:
    """Copy what tests need of the project, without the tests of the pages themselves."""
    ignore = shutil.ignore_patterns("__pycache__", "docs")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=ignore)
        else:
            shutil.copy(ROOT / part, target / part)
    return target


def follow(page: Path, tree: Path) -> list[str]:
    """Write a page's files and make its changes; return the tests it adds."""
    tests = []
    for block in blocks(page):
        path = tree / block.title
        if block.language == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), block.text), encoding="utf-8")
            continue
        if path.exists():
            raise ValueError(f"{page.name}: {block.title} exists already")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if path.name.startswith("test_"):
            tests.append(block.title)
    return tests


def changed(source: str, diff: str) -> str:
    """Return a source with a page's changes made."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.M):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
        after = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
        if source.count(before) != 1:
            raise ValueError(f"this place occurs {source.count(before)} times:\n{before}")
        source = source.replace(before, after)
    return source


def run_tests(tests: Iterable[str], tree: Path) -> tuple[dict[str, bool], str]:
    """Run tests of a tree; return test file -> whether all in it passed, and what pytest said."""
    report = tree / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *tests]
    done = subprocess.run(
        command,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    passed: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        passed[file] = passed.get(file, True) and not list(case)
    return passed, done.stdout + done.stderr
