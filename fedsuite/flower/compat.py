"""The few private parts of Flower 1.39 that this project needs, all in one place.

When Flower moves, this is the file to mend: nothing else touches what Flower does not publish.
"""

from __future__ import annotations

import httpx
from flwr.app import Message
from flwr.cli.constant import DEFAULT_FLOWER_CONFIG_TOML
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = [
    "DEFAULT_FLOWER_CONFIG_TOML",
    "SIMULATION",
    "TRANSPORT_ERRORS",
    "Run",
    "is_simulated",
    "set_message_id",
    "set_source",
    "simulated_run",
]

SIMULATION = "flwr-simulation"
SERVER_ID = 1
TASK_ID = 1
# What a grid raises when the SuperLink cannot be reached, as opposed to a reply it cannot read.
TRANSPORT_ERRORS = (httpx.HTTPError,)


def is_simulated(grid: Grid) -> bool:
    """Return whether nodes are simulated workers rather than real SuperNodes."""
    return grid.run.primary_task_type == SIMULATION


def simulated_run(run_id: int) -> Run:
    """Make a run for a grid of our own, and let messages made in this process belong to it."""
    run = Run.create_empty(run_id=run_id)
    run.primary_task_type = SIMULATION
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = TASK_ID, run_id, SERVER_ID
    return run


def set_message_id(message: Message, number: str) -> None:
    """Give a message the id that a SuperLink would have given it."""
    message.metadata.__dict__["_message_id"] = number


def set_source(message: Message, node_id: int) -> None:
    """Say whom a reply is from: known from the message it answers, not believed."""
    message.metadata.__dict__["_src_node_id"] = node_id
