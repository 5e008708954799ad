"""The engines by name. A new one is one file and one line here.

Reading the table imports nothing; an engine's module is imported when a run uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from fedsuite.core.settings import UserError, suggest

if TYPE_CHECKING:
    from fedsuite.engines.contract import Execute


class Engine(NamedTuple):
    """A line of help, and the engine's function as ``module:function``."""

    summary: str
    function: str


ENGINES: dict[str, Engine] = {
    "inline": Engine("in this process, one node at a time", "fedsuite.engines.inline:execute"),
    "ray": Engine("Flower's simulation, nodes in parallel", "fedsuite.engines.ray:execute"),
}
DEFAULT = "ray"
FORMER_NAMES = {"flower": "ray"}


def load_engine(name: str) -> Execute:
    """Return an engine's function."""
    if name not in ENGINES:
        raise UserError(f"invalid value '{name}' for --engine: {suggest(name, ENGINES)}")
    module, _, function = ENGINES[name].function.partition(":")
    execute: Execute = getattr(import_module(module), function)
    return execute


def engine_to_resume(recorded: str) -> str:
    """Return the engine that resumes a run, given the one that its record names."""
    name = FORMER_NAMES.get(recorded, recorded)
    return name if name in ENGINES else DEFAULT
