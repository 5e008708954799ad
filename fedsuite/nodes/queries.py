"""Queries to deployed nodes: asking who they are, without waiting, and checking their answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite.core.messages import write_instructions
from fedsuite.core.protocol import OWN, PARTITION, owner_name
from fedsuite.core.text import clean_line
from fedsuite.nodes.exchange import pull
from tasks.own_schema import Description, read_description

log = logging.getLogger("fedsuite")
QUERY_SECONDS = 300.0
RETRY_SECONDS = 60.0
MAX_TRIES = 3
MAX_PARTITIONS = 100_000
MIN_IDENTITY, MAX_IDENTITY = 16, 200


class Refused(Exception):
    """A node that cannot take part; the message is a sentence for both sides, which may quote it.

    It is as the node wrote it: :class:`DeployedNodes` cleans every refusal.
    """


@dataclass(frozen=True)
class Answer:
    """What a node says of itself.

    A node with a partition (``kind`` PARTITION) gives its ``partition_id`` of ``num_partitions``.
    A node with data of its own (OWN) gives a secret, known here by a hash as its ``owner``, and a
    ``description`` of its data.
    """

    node_id: int
    kind: str
    partition_id: int = 0
    num_partitions: int = 0
    owner: str = ""
    description: str = ""

    @cached_property
    def data(self) -> Description:
        """The description, read and checked; ``ValueError`` if it is invalid."""
        return read_description(self.description)


class NodeQueries:
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
        self._connected: set[int] = set()
        self._met: dict[int, float] = {}  # node, connected or not -> when it was first asked

    @property
    def pending(self) -> int:
        """How many nodes have not answered yet."""
        return len(self._waiting)

    def pending_since(self, seconds: float) -> int:
        """Return how many of them were first asked less than ``seconds`` ago."""
        now = time.monotonic()
        unanswered = {*self._waiting.values(), *(self._connected - self._asked)}
        return sum(now - self._met[node] < seconds for node in unanswered)

    @property
    def progress(self) -> tuple[int, int]:
        """How many nodes have connected so far, and how many have answered; neither ever falls.

        A node that connects again and again is counted once.
        """
        return len(self._met), len(self._tries)

    def poll(self, grid: Grid, connected: set[int]) -> list[tuple[int, Message]]:
        """Ask the nodes that are new; return the answers that have arrived, with their nodes.

        A node that fails to answer is asked again, up to three times in all.
        """
        self._waiting = {m: node for m, node in self._waiting.items() if node in connected}
        self._connected = connected
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
        """Let a node log a sentence; its answer is not waited for.

        Nothing depends on it: a failure to tell one node is logged, and the run continues.
        """
        try:
            content = write_instructions(ArrayRecord(), {"refusal": sentence}, {})
            grid.push_messages([Message(content, node, MessageType.QUERY)])
        except Exception as problem:
            log.warning("node %d cannot be told: %s", node, clean_line(repr(problem)))

    def _due_again(self) -> set[int]:
        """Return the nodes refused a while ago: they may have been restarted since."""
        now = time.monotonic()
        due = {node for node, when in self._refused_at.items() if now - when > RETRY_SECONDS}
        return due - set(self._waiting.values())

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = write_instructions(ArrayRecord(), self._question, {})
        messages = [Message(content, n, MessageType.QUERY, ttl=QUERY_SECONDS) for n in nodes]
        self._met = dict.fromkeys(nodes, time.monotonic()) | self._met
        for node, number in zip(nodes, grid.push_messages(messages), strict=True):
            if number:
                self._waiting[number] = node
        self._asked |= set(nodes)


def read_answer(node: int, reply: Message) -> Answer:
    """Read a node's answer; refuse a node that cannot or must not take part."""
    if reply.has_error():
        raise Refused(f"it failed to answer: {reply.error.reason}")
    try:
        record = reply.content.config_records["node"]
        if "refusal" in record:
            raise Refused(str(record["refusal"]))
        if record["kind"] == PARTITION:
            return _partition(node, record["partition-id"], record["num-partitions"])
        if record["kind"] == OWN:
            return _own(node, str(record["identity"]), str(record["description"]))
        raise Refused(f"unknown kind of node '{record['kind']!s}'")
    except KeyError as error:
        raise Refused(f"its answer has no {error}") from None


def _partition(node: int, number: object, count: object) -> Answer:
    if not (isinstance(number, int) and isinstance(count, int)):
        raise Refused("its partition-id or num-partitions is not a whole number")
    if not 0 <= number < count <= MAX_PARTITIONS:
        raise Refused(f"invalid partition-id {number} of num-partitions {count}")
    return Answer(node, PARTITION, number, count)


def _own(node: int, identity: str, description: str) -> Answer:
    if not MIN_IDENTITY <= len(identity) <= MAX_IDENTITY or not identity.isascii():
        raise Refused(f"its identity is not {MIN_IDENTITY} to {MAX_IDENTITY} ASCII characters")
    return Answer(node, OWN, owner=owner_name(identity), description=description)
