"""Read the settings a strategy declares from its source, without importing what it needs.

Importing a strategy brings in Flower, which takes longer than all else that a mistyped key needs.
Its settings are a dataclass of :func:`~fedsuite.core.settings.setting` fields alone, so that class
can be made by itself. Where it cannot, :class:`Unreadable` says so and the strategy is imported.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedsuite.core.settings import setting

ATTRIBUTE = "Params"


class Unreadable(Exception):
    """The class says more than its source alone can tell."""


@cache
def read_params(reference: str) -> type[Any]:
    """Return a copy of the settings class that ``MODULE:CLASS`` has as its ``Params``."""
    module, _, name = reference.partition(":")
    owner = getattr(_skeleton(module, name), ATTRIBUTE, None)
    if owner is None:
        raise Unreadable(f"{reference} has no {ATTRIBUTE}")
    return _compile(*_find_class(*owner))


def _skeleton(module: str, name: str) -> type[Any]:
    """Return a class with the bases of the real one, so that Python finds whose ``Params`` count.

    Bases from other packages have none.
    """
    home, node = _find_class(module, name)
    package = module.partition(".")[0]
    bases: list[type[Any]] = []
    for base in node.bases:
        if not isinstance(base, ast.Name):
            raise Unreadable(f"a base of {module}:{name} is not a plain name")
        if _origin(home, base.id).partition(".")[0] == package:
            bases.append(_skeleton(home, base.id))
    return _class(home, name, tuple(bases))


@cache
def _class(module: str, name: str, bases: tuple[type[Any], ...]) -> type[Any]:
    """Return one and the same class for a name, or else Python would see two bases in it."""
    chosen = {}
    for node in _find_class(module, name)[1].body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == ATTRIBUTE for target in targets):
            value = getattr(node, "value", None)
            if not isinstance(value, ast.Name):
                raise Unreadable(f"{ATTRIBUTE} of {module}:{name} is not a plain name")
            chosen[ATTRIBUTE] = (module, value.id)
    return type(name, bases, chosen)


def _find_class(module: str, name: str) -> tuple[str, ast.ClassDef]:
    """Return a class's definition and the module it is in, following imports of its name."""
    for node in _parse(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    origin = _origin(module, name)
    if origin == module:
        raise Unreadable(f"{module} neither defines nor imports {name}")
    return _find_class(origin, name)


def _origin(module: str, name: str) -> str:
    """Return the module a name is imported from; ``module`` itself if it is not imported."""
    for node in _parse(module).body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if any(alias.name == name and alias.asname is None for alias in node.names):
                return node.module
    return module


@cache
def _parse(module: str) -> ast.Module:
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    if found is None or not found.origin:
        raise Unreadable(f"there is no source of {module}")
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def _compile(module: str, node: ast.ClassDef) -> type[Any]:
    """Make the class alone; refuse anything but fields, since methods need their module's names."""
    for part in node.body:
        documents = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        if not documents and not isinstance(part, ast.AnnAssign):
            raise Unreadable(f"{node.name} has more than fields")
    future = __future__.annotations.compiler_flag if _postpones_annotations(module) else 0
    code = compile(
        ast.Module([node], type_ignores=[]), f"<{module}>", "exec", future, dont_inherit=True
    )
    names: dict[str, Any] = {"dataclass": dataclass, "setting": setting, "__name__": __name__}
    for base in node.bases:
        if isinstance(base, ast.Name):
            names[base.id] = _compile(*_find_class(module, base.id))
    try:
        exec(code, names)
    except NameError as error:
        raise Unreadable(str(error)) from None
    made: type[Any] = names[node.name]
    return made


def _postpones_annotations(module: str) -> bool:
    return _origin(module, "annotations") == "__future__"
