"""A Flower server that runs every algorithm over one simulation, each cut short and resumed.

Copied into a small Flower app of its own by ``test_ray_algorithms.py``, whose settings come in
``SETTINGS``; Ray is started once rather than for every run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedsuite.config import parse
from fedsuite.training.loop import run

app = ServerApp()


class PowerCut(BaseException):
    """Nothing in the suite expects it."""


class CutGrid:
    """A grid that fails after a number of exchanges."""

    def __init__(self, grid: Grid, exchanges: int) -> None:
        self.grid, self.left = grid, exchanges

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)

    def send_and_receive(self, messages: Iterable[Message], **options: Any) -> Iterable[Message]:
        replies = self.grid.send_and_receive(messages, **options)
        self.left -= 1
        if self.left < 0:
            raise PowerCut
        return replies


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run each algorithm into a crash and resume it."""
    settings = json.loads(str(context.run_config["settings"]))
    for algo in settings["algorithms"]:
        chosen = settings["shared"] | settings["own"].get(algo, {})
        chosen |= {"algo": algo, "run-name": algo}
        with suppress(PowerCut):
            run(parse(chosen), CutGrid(grid, 3), engine="ray")  # type: ignore[arg-type]
        run(parse(chosen | {"resume": True}), grid, engine="ray")
