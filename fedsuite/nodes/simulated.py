"""Which node of a simulation hosts which client.

A SuperNode is a worker, a client is a partition. If all nodes share the run's folder (a simulation
on one machine), any node can host any client, and a round's clients are distributed so that nodes
finish together. If not, client ``c`` stays on node ``c mod M``, next to its state. Neither choice
changes a bit of the result.

Deployed nodes are clients themselves: see :mod:`fedsuite.nodes.deployed`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite.config import RunConfig
from fedsuite.core.messages import clean_reason, write_instructions
from fedsuite.core.text import clean_line
from fedsuite.core.transport import ByMessage, ByReference, Transport
from fedsuite.core.vector_files import vector_files
from fedsuite.flower.compat import count_machines

QUERY_TIMEOUT = 600.0
WAIT_FOR_NODES = 60.0


@dataclass(frozen=True)
class SimulatedNode:
    """A simulated node: which of how many it is, and whether it shares the run's folder and files
    of vectors.
    """

    node_id: int
    number: int
    num_nodes: int
    shares_disk: bool
    shares_vectors: bool = False


def balanced(clients: Iterable[int], loads: Mapping[int, float], num_nodes: int) -> list[list[int]]:
    """Assign clients to nodes, largest first, each to the node with the least load so far."""
    cohorts: list[list[int]] = [[] for _ in range(num_nodes)]
    totals = [0.0] * num_nodes
    for client in sorted(clients, key=lambda c: (-loads[c], c)):
        least = totals.index(min(totals))
        cohorts[least].append(client)
        totals[least] += loads[client]
    return cohorts


def fixed(clients: Iterable[int], num_nodes: int) -> list[list[int]]:
    """Keep client ``c`` on node ``c mod M``."""
    cohorts: list[list[int]] = [[] for _ in range(num_nodes)]
    for client in sorted(clients):
        cohorts[client % num_nodes].append(client)
    return cohorts


class SimulatedNodes:
    """The nodes of a simulation, each asked once; each can host any client."""

    time_limit = None
    share_disk = True

    def __init__(self, sizes: Mapping[int, int] | None = None) -> None:
        self.identities: dict[str, int] = {}
        self.state_rounds: dict[int, int] = {}
        self._sizes = dict(sizes or {})
        self._header: dict[str, str] = {}
        self._by_message = ByMessage()
        self._by_reference: ByReference | None = None
        self._known: dict[int, SimulatedNode] = {}
        self._nodes: list[SimulatedNode] = []
        self._news: list[str] = []
        self._machines = 1

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Send nodes the run's settings and its folder, which they share."""
        self._header |= {"run": config.to_json(), "run-id": run_id, "run-dir": str(folder)}

    @property
    def message_header(self) -> Mapping[str, str]:
        """The run's settings, its folder and its files of vectors."""
        return self._header

    @property
    def vectors(self) -> Transport:
        """How vectors travel: by reference if all nodes see the run's files of vectors.

        On a cluster of several machines any of them may compute for a node, whoever answered.
        """
        sees_files = all(node.shares_vectors for node in self._nodes) and self._machines == 1
        if self._by_reference and sees_files:
            return self._by_reference
        return self._by_message

    @contextmanager
    def sharing_vectors(self, folder: Path) -> Iterator[None]:
        """Offer nodes files for vectors; remove them at the end."""
        with vector_files(folder) as files:
            self._header |= files.header
            self._by_reference = ByReference(files)
            try:
                yield
            finally:
                self._by_reference = None

    def save(self, folder: Path) -> None:
        """Write nothing: the settings suffice."""

    def meet(self, grid: Grid) -> None:
        """Ask all nodes, which open their data to answer."""
        self.refresh(grid)

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Return the number of clients at once: simulated nodes do not come and go."""
        return config.num_clients

    def client_sizes(self) -> dict[int, int]:
        """Return the sizes of the clients' partitions."""
        return self._sizes

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages and wait for all replies; send what a killed worker lost again.

        A node is a queue: another worker takes what it is sent, and computes the same bits. Since
        workers are killed for want of memory as a rule, the last try is one node after the other.
        """
        deadline = time.monotonic() + seconds
        replies: dict[int, Message] = {}
        for cohorts in ([messages], [messages], [[message] for message in messages]):
            for cohort in cohorts:
                lost = [m for m in cohort if _is_lost(replies.get(m.metadata.dst_node_id))]
                left = deadline - time.monotonic()
                if lost and left > 0:
                    self._report(lost, replies)
                    for reply in grid.send_and_receive(map(_copy, lost), timeout=left):
                        replies[reply.metadata.src_node_id] = reply
        return replies.values()

    def refresh(self, grid: Grid) -> None:
        """Find the connected nodes, in the order of their numbers; ask the new ones."""
        deadline = time.monotonic() + WAIT_FOR_NODES
        while True:
            connected = set(grid.get_node_ids())
            self._ask(grid, connected - set(self._known))
            nodes = [self._known[n] for n in connected if n in self._known]
            expected = max((node.num_nodes for node in nodes), default=1)
            if len(nodes) >= expected or (nodes and time.monotonic() > deadline):
                self._machines = count_machines()
                self._nodes = sorted(nodes, key=lambda node: (node.number, node.node_id))
                return
            if time.monotonic() > deadline:
                raise ConnectionError(f"no node connected within {WAIT_FOR_NODES:.0f} s")
            time.sleep(0.05)

    def available(self, num_clients: int) -> list[int]:
        """Return the clients that can be reached: all of them."""
        return list(range(num_clients))

    def assign(self, clients: Sequence[int], loads: Mapping[int, float]) -> dict[int, list[int]]:
        """Return node id -> its cohort, in the order of computation."""
        if all(node.shares_disk for node in self._nodes):
            cohorts = balanced(clients, loads, len(self._nodes))
        else:
            cohorts = fixed(clients, len(self._nodes))
        pairs = zip(self._nodes, cohorts, strict=True)
        return {node.node_id: cohort for node, cohort in pairs if cohort}

    def client_header(self, client: int) -> dict[str, str]:
        """Return nothing: every node can host every client."""
        return {}

    def news(self) -> list[str]:
        """Return which nodes have failed since the last call, as sentences."""
        news, self._news = self._news, []
        return news

    def _report(self, lost: Sequence[Message], replies: Mapping[int, Message]) -> None:
        """Tell of the nodes whose reply was an error, before their clients are computed again."""
        for message in lost:
            node = message.metadata.dst_node_id
            if node in replies:
                reason = clean_line(str(replies[node].error.reason).partition("\n")[0])
                reason = reason.rpartition(":<'")[2].removesuffix("'>").rstrip(".")  # Flower's form
                known = self._known.get(node)
                who = f"node {known.number}" if known else "a node"
                again = "its clients are sent again" if known else "it is asked again"
                self._news.append(f"{who} failed ({reason}); {again}")

    def _ask(self, grid: Grid, new: set[int]) -> None:
        if not new:
            return
        content = write_instructions(ArrayRecord(), self.message_header, ())
        questions = [Message(content, node, MessageType.QUERY) for node in sorted(new)]
        for reply in self.exchange(grid, questions, QUERY_TIMEOUT):
            node_id = reply.metadata.src_node_id
            if reply.has_error():
                reason = clean_reason(str(reply.error.reason))
                raise RuntimeError(f"node {node_id} cannot take part: {reason}")
            answer = reply.content.config_records["node"]
            self._known[node_id] = SimulatedNode(
                node_id,
                number=int(answer["partition-id"]),  # type: ignore[arg-type]
                num_nodes=int(answer["num-partitions"]),  # type: ignore[arg-type]
                shares_disk=bool(answer["shares-disk"]),
                shares_vectors=bool(answer.get("shares-vectors", False)),
            )


def _is_lost(reply: Message | None) -> bool:
    return reply is None or reply.has_error()


def _copy(message: Message) -> Message:
    """Return a message to be sent; a message that was sent before cannot be sent again."""
    sent = message.metadata
    return Message(
        message.content, sent.dst_node_id, sent.message_type, ttl=sent.ttl, group_id=sent.group_id
    )
