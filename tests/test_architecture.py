"""Dependencies point one way: fedsuite -> strategies, clients -> tasks -> leaf modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fedsuite import registry

ROOT = Path(__file__).parents[1]
LEAVES = {"fedsuite.settings", "fedsuite.seeds", "fedsuite.vector", "fedsuite.wire"}
MAY_IMPORT = {
    "fedsuite": {"fedsuite", "strategies", "clients", "tasks"},
    "strategies": {"strategies"},
    "clients": {"clients", "tasks"},
    "tasks": {"tasks"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_leaf(name: str) -> bool:
    return any(name == leaf or name.startswith(f"{leaf}.") for leaf in LEAVES)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_lies_below_them(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        for name in imports(path):
            top = name.split(".")[0]
            if top in MAY_IMPORT and not is_leaf(name):
                assert top in MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaf_modules_import_nothing_of_ours_but_leaves(leaf: str) -> None:
    for name in imports(ROOT / (leaf.replace(".", "/") + ".py")):
        assert name.split(".")[0] not in MAY_IMPORT or is_leaf(name)


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_both_sides_of_an_algorithm_agree_on_the_wire(name: str) -> None:
    algorithm = registry.find(name)
    assert algorithm.strategy.expects == algorithm.client.sends
    assert algorithm.strategy.shares_model == ("model" in algorithm.client.receives)
    assert algorithm.strategy.summary_line
    assert algorithm.strategy.__module__ != "strategies.base"
