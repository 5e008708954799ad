"""What an engine is: a function that executes one run to its end.

Before it is called, :func:`fedsuite.engines.start.start_run` has checked the settings and named the
run; afterwards it looks at the record. In between the engine calls ``follow`` once, which shows the
progress until the function it is given says that the run is over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fedsuite.config import RunConfig


@dataclass(frozen=True)
class EngineOptions:
    """How to execute a run: the number of nodes, and GPUs per node (a share of one, or 0).

    Before the run is started, 0 nodes are the engine's default number of them.
    ``prepared`` is what the engine's own ``prepare`` has started, if it was asked to. A
    ``ray_address`` is that of an existing Ray cluster.
    """

    nodes: int = 1
    gpus: float = 0.0
    prepared: object = None
    ray_address: str = ""


IsRunning = Callable[[float], bool]
"""Wait some seconds for the run's end; return whether it is still running."""
Follow = Callable[[IsRunning], None]
"""Show the run's progress until it has ended."""
Execute = Callable[[RunConfig, EngineOptions, Follow], None]
"""Execute a run; what goes wrong is in the run's record, or raised as a ``UserError`` or
``RunFailed``."""
Prepare = Callable[[str], AbstractContextManager[object]]
"""Start what every run of an engine needs, while the run's settings are checked; end it after."""
