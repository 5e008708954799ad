"""The engines by name. A new one is one file and one line here.

Reading the table imports nothing; an engine's module is imported when a run uses it.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from fedsuite.core.protocol import RAY
from fedsuite.core.settings import invalid, suggest

if TYPE_CHECKING:
    from fedsuite.engines.contract import Execute, Prepare


class Engine(NamedTuple):
    """A line of help, the engine's function as ``module:function``, and how its nodes compute.

    The nodes of a ``parallel`` engine compute at the same time, so that one run uses all cores.
    ``prepare``, also ``module:function``, starts what any run needs while its settings are checked.
    """

    summary: str
    function: str
    parallel: bool = False
    prepare: str = ""

    @property
    def default_nodes(self) -> int:
        """How many nodes a run has by default: one per core if they compute in parallel."""
        return (os.cpu_count() or 1) if self.parallel else 1


ENGINES: dict[str, Engine] = {
    "inline": Engine("in this process, one node at a time", "fedsuite.engines.inline:execute"),
    RAY: Engine(
        "Flower's simulation, nodes in parallel",
        "fedsuite.engines.ray:execute",
        True,
        "fedsuite.engines.ray:prepare",
    ),
}
SHORT_RUNS, LONG_RUNS = "inline", RAY
AUTO = "auto"
AUTO_SUMMARY = f"{SHORT_RUNS} if the run takes under half a minute and there is no GPU, else {RAY}"
DEFAULT = AUTO
DEFAULT_IN_SUITES = "inline"
MAX_NODES = 1000
FORMER_NAMES = {"flower": RAY}


def settle_engine(name: str, nodes: int, gpus: float) -> str:
    """Return the engine, or ``auto`` if its choice depends on the run's length.

    Whoever says how many nodes or GPUs to use wants nodes that compute in parallel.
    """
    if name not in (AUTO, *ENGINES):
        raise invalid("--engine", name, suggest(name, (AUTO, *ENGINES)))
    if not isinstance(nodes, int) or not 0 <= nodes <= MAX_NODES:
        raise invalid("--nodes", nodes, f"it takes a whole number from 1 to {MAX_NODES}.")
    if not 0 <= gpus < math.inf:
        raise invalid("--gpus", gpus, "it takes a number of at least 0.")
    return LONG_RUNS if name == AUTO and (nodes or gpus) else name


def load_engine(name: str) -> Execute:
    """Return an engine's function."""
    execute: Execute = _load(ENGINES[name].function)
    return execute


def prepare_engine(name: str, ray_address: str = "") -> AbstractContextManager[object]:
    """Start what a run on an engine needs, to be ready once the run's settings are checked."""
    if name not in ENGINES or not ENGINES[name].prepare:
        return nullcontext()
    prepare: Prepare = _load(ENGINES[name].prepare)
    return prepare(ray_address)


def engine_to_resume(recorded: str) -> str:
    """Return the engine that resumes a run, given the one that its record names."""
    name = FORMER_NAMES.get(recorded, recorded)
    return name if name in ENGINES else DEFAULT


def _load(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)
