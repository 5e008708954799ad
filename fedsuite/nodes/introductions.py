"""Asking deployed nodes who they are, without waiting for anybody's answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite.core.messages import write_instructions
from fedsuite.nodes.exchange import pull

log = logging.getLogger("fedsuite")
QUERY_SECONDS = 300.0
RETRY_SECONDS = 60.0
MAX_TRIES = 3


class Introductions:
    """Asks each connected node once, and again after a while if it was refused.

    ``question`` is what every node is asked. ``refused`` has the reason for every node refused.
    """

    def __init__(self, question: Mapping[str, str]) -> None:
        self.refused: dict[int, str] = {}
        self._question = dict(question)
        self._waiting: dict[str, int] = {}  # message id -> node
        self._asked: set[int] = set()
        self._tries: dict[int, int] = {}
        self._refused_at: dict[int, float] = {}

    @property
    def pending(self) -> int:
        """How many nodes have not answered yet."""
        return len(self._waiting)

    def poll(self, grid: Grid, connected: set[int]) -> list[tuple[int, Message]]:
        """Ask the nodes that are new; return the answers that have arrived, with their nodes.

        A node that fails to answer is asked again, up to three times in all.
        """
        self._waiting = {m: node for m, node in self._waiting.items() if node in connected}
        self._asked = (self._asked & connected) - self._due_again()
        if new := sorted(connected - self._asked):
            self._ask(grid, new)
        answers = []
        for number, node in list(self._waiting.items()):
            for reply in pull(grid, number, node):
                del self._waiting[number]
                self._tries[node] = self._tries.get(node, 0) + 1
                if reply.has_error() and self._tries[node] < MAX_TRIES:
                    self._asked.discard(node)
                else:
                    answers.append((node, reply))
        return answers

    def refuse(self, grid: Grid, node: int, reason: str) -> bool:
        """Refuse a node and tell it why; return whether the reason is new."""
        is_new = self.refused.get(node) != reason
        self.refused[node] = reason
        self._refused_at[node] = time.monotonic()
        if is_new:
            self.tell(grid, node, reason)
        return is_new

    def accept(self, node: int) -> None:
        """Take a node in that may have been refused before."""
        self.refused.pop(node, None)
        self._refused_at.pop(node, None)

    def tell(self, grid: Grid, node: int, sentence: str) -> None:
        """Let a node log a sentence; its answer is not waited for."""
        content = write_instructions(ArrayRecord(), {"refusal": sentence}, {})
        grid.push_messages([Message(content, node, MessageType.QUERY)])

    def _due_again(self) -> set[int]:
        """Return the nodes refused a while ago: they may have been restarted since."""
        now = time.monotonic()
        due = {node for node, when in self._refused_at.items() if now - when > RETRY_SECONDS}
        return due - set(self._waiting.values())

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = write_instructions(ArrayRecord(), self._question, {})
        messages = [Message(content, n, MessageType.QUERY, ttl=QUERY_SECONDS) for n in nodes]
        for node, number in zip(nodes, grid.push_messages(messages), strict=True):
            if number:
                self._waiting[number] = node
        self._asked |= set(nodes)
