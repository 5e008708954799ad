"""A fingerprint of the code that decides a run's results.

It covers the functions, classes and constants that the two apps, the run's algorithm and whatever
else it has from outside reach, found by reading their sources and following names. What cannot
change a result does not count: comments, docstrings, help texts, messages of errors and logs, the
module a definition stands in, and all code that a run does not reach. So a reworded sentence, a
moved function, a change to a report or to another algorithm leaves finished runs valid.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fedsuite import registry
from fedsuite.core.installation import PACKAGES, ROOT
from fedsuite.core.plugins import REFERENCE, reference_of

ROOTS = ("fedsuite.client_app", "fedsuite.training.loop", "fedsuite.engines.inline")
LISTS = "fedsuite.registry"  # names every algorithm, so it changes with each new one
LOGGERS = ("log", "logger", "logging", "warnings")
Definition = tuple[str, str]  # a module and a name in it


@dataclass
class Module:
    """A source as its top-level definitions, what its names import, and its other statements."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    loose: list[ast.stmt] = field(default_factory=list)


@cache
def code_version(algo: str, *outside: str) -> str:
    """Return the hash of all definitions a run of this algorithm depends on.

    ``outside`` are the ``MODULE:ATTRIBUTE`` of a dataset, model or partition from outside.
    """
    sources = Sources(algo, *outside)
    texts = {text for definition in sources.reach() for text in sources.texts(definition)}
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


class Sources:
    """The sources a run of an algorithm may use: ours, and the packages of what is from outside."""

    def __init__(self, algo: str, *outside: str) -> None:
        entry = registry.ALGORITHMS.get(algo)
        own = (entry.strategy, entry.client) if entry else (reference_of("algo", algo),)
        self.chosen = [reference.partition(":")[0] for reference in (*own, *outside)]
        self.packages = {*PACKAGES, *(module.partition(".")[0] for module in self.chosen)}
        self._parsed: dict[str, Module | None] = {}

    def reach(self) -> set[Definition]:
        """Return every definition that a run may use."""
        modules = [*ROOTS, *self.chosen]
        waiting = [found for module in modules for found in self._all(module)]
        reached: set[Definition] = set()
        while waiting:
            definition = waiting.pop()
            if definition not in reached and definition[0] != LISTS:
                reached.add(definition)
                waiting += self._references(definition)
        return reached

    def texts(self, definition: Definition) -> list[str]:
        """Write down what a definition does."""
        return [_text(statement) for statement in self._statements(definition)]

    def _all(self, module: str) -> list[Definition]:
        """Return all definitions of a module; an empty name stands for its other statements."""
        parsed = self._read(module)
        return [(module, name) for name in (*parsed.definitions, "")] if parsed else []

    def _statements(self, definition: Definition) -> list[ast.stmt]:
        module, name = definition
        parsed = self._read(module)
        assert parsed is not None
        return parsed.definitions[name] if name else parsed.loose

    def _references(self, definition: Definition) -> set[Definition]:
        """Return the definitions that one names, and the loose statements of its module."""
        module, _ = definition
        parsed = self._read(module)
        assert parsed is not None
        found: set[Definition] = {(module, "")}
        for statement in self._statements(definition):
            dotted_names, references = _names(statement)
            for dotted in dotted_names:
                first, _, rest = dotted.partition(".")
                if first in parsed.definitions:
                    found.add((module, first))
                elif first in parsed.imports:
                    target = parsed.imports[first]
                    found |= set(self._resolve(f"{target}.{rest}" if rest else target))
            for reference in references:
                found |= set(self._resolve(reference.replace(":", ".")))
        return found

    def _resolve(self, dotted: str) -> Iterator[Definition]:
        """Follow a dotted name to what it stands for: all of a module if it is one."""
        module, names = dotted, list[str]()
        while module and self._read(module) is None:
            module, _, last = module.rpartition(".")
            names.insert(0, last)
        parsed = self._read(module)
        if parsed is None:
            return
        if not names:
            yield from self._all(module)
        elif names[0] in parsed.definitions:
            yield module, names[0]
        elif names[0] in parsed.imports:
            yield from self._resolve(".".join([parsed.imports[names[0]], *names[1:]]))

    def _read(self, module: str) -> Module | None:
        """Read a module's source, once; None if it is neither ours nor of such a package."""
        if module.partition(".")[0] not in self.packages:
            return None
        if module not in self._parsed:
            path = _path(module)
            source = None if path is None else path.read_text(encoding="utf-8")
            self._parsed[module] = None if source is None else parse_module(source)
        return self._parsed[module]


@cache
def _names(statement: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Return the dotted names that a statement uses, and its strings that refer to something."""
    strings = (text for text in _strings(statement) if REFERENCE.fullmatch(text))
    return frozenset(_mentions(statement)), frozenset(strings)


def _mentions(statement: ast.stmt) -> Iterator[str]:
    """Yield names and dotted names (``seeds.generator``) that a statement uses."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            parts, inner = [node.attr], node.value
            while isinstance(inner, ast.Attribute):
                parts.insert(0, inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield ".".join([inner.id, *parts])


def _strings(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def parse_module(source: str) -> Module:
    """Take a source apart."""
    tree, parsed = ast.parse(source), Module()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                parsed.imports[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom) and node.module:
            parsed.imports |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for statement in tree.body:
        names = _defined(statement)
        for name in names:
            parsed.definitions.setdefault(name, []).append(statement)
        if not names and not isinstance(statement, ast.Import | ast.ImportFrom):
            parsed.loose += [] if _is_docstring(statement) else [statement]
    return parsed


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


class _Essence(ast.NodeTransformer):
    """Removes what cannot change a result."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop the docstring and annotations."""
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Drop the docstring; annotations of a class are its fields."""
        return self._without_docstring(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Keep what is raised, without its message."""
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop logging."""
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id in LOGGERS:
                return ast.Pass()
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop the help text of a setting."""
        if isinstance(node.func, ast.Name) and node.func.id == "setting":
            node.args = node.args[:1]
        return self.generic_visit(node)

    def _without_docstring(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if node.body and _is_docstring(node.body[0]):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _is_docstring(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@cache
def _text(statement: ast.stmt) -> str:
    """Write down what a statement does, without where it stands and how it is explained."""
    return ast.dump(_Essence().visit(copy.deepcopy(statement)))


@cache
def _path(module: str) -> Path | None:
    """Return a module's file; one from outside is looked up as Python would."""
    if module.partition(".")[0] in PACKAGES:
        place = ROOT.joinpath(*module.split("."))
        candidates = (place.with_suffix(".py"), place / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found is not None and found.origin else None
