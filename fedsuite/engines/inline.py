"""The inline engine: a Grid that calls the ClientApp in this process.

For tests, debugging and small runs: no Ray, no sockets, the same two app objects.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedsuite.client_app import app as client_app
from fedsuite.config import RunConfig
from fedsuite.engines.background import run_in_background
from fedsuite.engines.contract import EngineOptions, Follow
from fedsuite.flower.compat import CLIENT_APP_FAILED, Run, make_run, set_message_id
from fedsuite.training.loop import run

RUN_ID = 1
FIRST_NODE_ID = 1000


class InlineGrid(Grid):
    """``num_nodes`` nodes that answer at once, one after the other."""

    def __init__(self, num_nodes: int = 1, app: ClientApp = client_app) -> None:
        self._app = app
        self._run = make_run(RUN_ID)
        self._contexts = {
            FIRST_NODE_ID + number: Context(
                run_id=RUN_ID,
                node_id=FIRST_NODE_ID + number,
                node_config={"partition-id": number, "num-partitions": num_nodes},
                state=RecordDict(),
                run_config={},
            )
            for number in range(num_nodes)
        }
        self._numbers = itertools.count()
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Run) -> None:
        """Set the run this grid works for."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run this grid works for."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message (Flower's older spelling)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes' ids."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Handle messages now; their replies wait to be pulled."""
        numbers = []
        for message in messages:
            number = str(next(self._numbers))
            set_message_id(message, number)
            self._replies[number] = self._handle(message)
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return replies."""
        return [self._replies.pop(n) for n in message_ids if n in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Handle messages and return their replies."""
        return [self._handle(message) for message in messages]

    def _handle(self, message: Message) -> Message:
        try:
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:
            return Message(Error(CLIENT_APP_FAILED, repr(error)), reply_to=message)


def execute(config: RunConfig, options: EngineOptions, follow: Follow) -> None:
    """Execute a run in this process."""
    run_in_background(config, lambda: run_inline(config, options.nodes), follow)


def run_inline(config: RunConfig, num_nodes: int = 1) -> Path:
    """Run an experiment in this process and return its folder."""
    return run(config, InlineGrid(num_nodes), engine="inline")
