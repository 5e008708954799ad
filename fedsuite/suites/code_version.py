"""A fingerprint of the code that decides a run's results.

It covers the modules that the two apps and the run's algorithm import, found by reading their
sources: a change to a report, or to another algorithm, leaves finished runs valid.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from fedsuite import registry

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedsuite", "strategies", "clients", "tasks")
ROOTS = ("fedsuite.client_app", "fedsuite.training.loop", "fedsuite.engines.inline")
LISTS = "fedsuite.registry"  # names every algorithm, so it changes with each new one


@cache
def code_version(algo: str) -> str:
    """Return the hash of all sources a run of this algorithm depends on."""
    entry = registry.ALGORITHMS.get(algo)
    names = (entry.strategy, entry.client) if entry else (algo,)
    own = [name.partition(":")[0] for name in names]
    digest = hashlib.sha256()
    for module in sorted(_reach([*ROOTS, *own]) - {LISTS}):
        digest.update(f"{module}\n".encode())
        digest.update(_source(module))
    return digest.hexdigest()


def _reach(modules: list[str]) -> set[str]:
    """Return modules and all that they import of ours, directly or not."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _imports(module)
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ours = (name for name in names if name.split(".")[0] in PACKAGES)
    return tuple(sorted(name for name in ours if _path(name) is not None))


@cache
def _source(module: str) -> bytes:
    path = _path(module)
    return path.read_bytes() if path is not None else b""


def _path(module: str) -> Path | None:
    """Return a module's file; one from outside is looked up as Python would."""
    if module.split(".")[0] in PACKAGES:
        place = ROOT.joinpath(*module.split("."))
        candidates = (place.with_suffix(".py"), place / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)
    found = importlib.util.find_spec(module)
    return Path(found.origin) if found is not None and found.origin else None
