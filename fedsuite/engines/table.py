"""The engines by name. A new one is one file and one line here.

Reading the table imports nothing; an engine's module is imported when a run uses it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from fedsuite.core.protocol import RAY
from fedsuite.core.settings import UserError, suggest

if TYPE_CHECKING:
    from fedsuite.engines.contract import Execute


class Engine(NamedTuple):
    """A line of help, the engine's function as ``module:function``, and how its nodes compute.

    The nodes of a ``parallel`` engine compute at the same time, so that one run uses all cores.
    """

    summary: str
    function: str
    parallel: bool = False

    @property
    def default_nodes(self) -> int:
        """How many nodes a run has by default: one per core if they compute in parallel."""
        return (os.cpu_count() or 1) if self.parallel else 1


ENGINES: dict[str, Engine] = {
    "inline": Engine("in this process, one node at a time", "fedsuite.engines.inline:execute"),
    RAY: Engine("Flower's simulation, nodes in parallel", "fedsuite.engines.ray:execute", True),
}
DEFAULT = RAY
DEFAULT_IN_SUITES = "inline"
FORMER_NAMES = {"flower": RAY}


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
