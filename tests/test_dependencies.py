"""Every package that is imported is declared, and pinned for tests."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from fedsuite.core.tracker_names import TRACKERS

ROOT = Path(__file__).parents[1]
OURS = ("fedsuite", "strategies", "clients", "tasks")


def normal(name: str) -> str:
    """Spell a distribution as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """Return what is installed with the package, and with each of its trackers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in (*TRACKERS, "onnx"):
        lines += project["optional-dependencies"][extra]
    return {normal(re.split(r"[\[<>=!~ ;]", line)[0]) for line in lines}


def imported() -> dict[str, set[str]]:
    """Return the packages from elsewhere that our modules import, and where."""
    found: dict[str, set[str]] = {}
    for path in (path for package in OURS for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names and name not in OURS:
                    found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_import_is_a_declared_dependency() -> None:
    sources, known = packages_distributions(), declared() | set(TRACKERS)
    undeclared = {
        name: places
        for name, places in imported().items()
        if not {normal(source) for source in sources.get(name, [name])} & known
    }
    assert not undeclared


def test_every_dependency_is_pinned_for_tests() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(line.partition("==")[0]) for line in lines if "==" in line}
    assert not declared() - pinned
