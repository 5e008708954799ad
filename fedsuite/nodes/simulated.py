"""Which node of a simulation hosts which client.

A SuperNode is a worker, a client is a partition. If all nodes share the run's folder (a simulation
on one machine), any node can host any client, and a round's clients are distributed so that nodes
finish together: in cohorts that are dealt out to who is free, or, where clients train in stacks, in
one per node. If not, client ``c`` stays on node ``c mod M``, next to its state. No choice changes a
bit of the result.

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
from fedsuite.flower.compat import count_machines, set_source

QUERY_TIMEOUT = 600.0
WAIT_FOR_NODES = 60.0


@dataclass(frozen=True)
class SimulatedNode:
    """A simulated node: which of how many it is, whether it shares the run's folder and files of
    vectors, and whether it trains clients in stacks.
    """

    node_id: int
    number: int
    num_nodes: int
    shares_disk: bool
    shares_vectors: bool = False
    stacks: bool = False


def balanced(
    clients: Iterable[int],
    loads: Mapping[int, float],
    num_nodes: int,
    totals: list[float] | None = None,
) -> list[list[int]]:
    """Assign clients to nodes, largest first, each to the node with the least load so far.

    ``totals`` are the nodes' loads before, and afterwards those with these clients.
    """
    cohorts: list[list[int]] = [[] for _ in range(num_nodes)]
    totals = [0.0] * num_nodes if totals is None else totals
    for client in largest_first(clients, loads):
        least = totals.index(min(totals))
        cohorts[least].append(client)
        totals[least] += loads[client]
    return cohorts


def dealt(clients: Iterable[int], loads: Mapping[int, float], num_nodes: int) -> list[list[int]]:
    """Cut clients into cohorts for whichever node is free next.

    Half of the load is cut into a cohort per node, then half of what is left, and so on: few
    cohorts, and small ones at the end. Nodes of equal speed get the clients that
    :func:`balanced` gives them.
    """
    queue = largest_first(clients, loads)
    left, totals = sum(loads[client] for client in queue), [0.0] * num_nodes
    cohorts: list[list[int]] = []
    while queue:
        half, batch = left / 2, list[int]()
        while queue and (left > half or not batch):
            batch.append(queue.pop(0))
            left -= loads[batch[-1]]
        free_first = sorted(range(num_nodes), key=totals.__getitem__)
        shares = balanced(batch, loads, num_nodes, totals)
        cohorts += [shares[node] for node in free_first if shares[node]]
    return cohorts


def largest_first(clients: Iterable[int], loads: Mapping[int, float]) -> list[int]:
    """Sort clients by load, those of equal load by number."""
    return sorted(clients, key=lambda client: (-loads[client], client))


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
        self._hosts: dict[int, int] = {}  # cohort -> the id of its node
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
        workers are killed for want of memory as a rule, the last try is one message at a time.
        """
        deadline = time.monotonic() + seconds
        replies: dict[int, Message] = {}
        for groups in ([messages], [messages], [[message] for message in messages]):
            for group in groups:
                lost = [m for m in group if _is_lost(replies.get(m.metadata.dst_node_id))]
                left = deadline - time.monotonic()
                if lost and left > 0:
                    self._report(lost, replies)
                    for reply in grid.send_and_receive(map(self._to_node, lost), timeout=left):
                        cohort = int(reply.metadata.group_id)
                        set_source(reply, cohort)
                        replies[cohort] = reply
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
        """Return the cohorts in the order in which they are to be sent, by number.

        A cohort has the id of its node, or a number of its own if there are several per node.
        """
        nodes = [node.node_id for node in self._nodes]
        self._hosts = {node: node for node in nodes}
        if not all(node.shares_disk for node in self._nodes):
            cohorts = fixed(clients, len(nodes))
        elif self._deals_out():
            cohorts = dealt(clients, loads, len(nodes))
            self._hosts = {-1 - n: nodes[n % len(nodes)] for n in range(len(cohorts))}
        else:
            cohorts = balanced(clients, loads, len(nodes))
        pairs = zip(self._hosts, cohorts, strict=True)
        return {number: cohort for number, cohort in pairs if cohort}

    def _deals_out(self) -> bool:
        """Return whether many small messages pay: not with stacks, nor with the model in each."""
        has_stacks = any(node.stacks for node in self._nodes)
        return len(self._nodes) > 1 and not has_stacks and self.vectors is self._by_reference

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
            cohort = message.metadata.dst_node_id
            if cohort in replies:
                reason = clean_line(str(replies[cohort].error.reason).partition("\n")[0])
                reason = reason.rpartition(":<'")[2].removesuffix("'>").rstrip(".")  # Flower's form
                known = self._known.get(self._hosts.get(cohort, cohort))
                who = f"node {known.number}" if known else "a node"
                again = "its clients are sent again" if known else "it is asked again"
                self._news.append(f"{who} failed ({reason}); {again}")

    def _to_node(self, message: Message) -> Message:
        """Return a message to be sent to a cohort's node; one that was sent cannot be sent again.

        Its group is the cohort, by which its reply is known.
        """
        sent = message.metadata
        cohort = sent.dst_node_id
        node = self._hosts.get(cohort, cohort)
        return Message(message.content, node, sent.message_type, ttl=sent.ttl, group_id=str(cohort))

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
                stacks=bool(answer.get("stacks", False)),
            )


def _is_lost(reply: Message | None) -> bool:
    return reply is None or reply.has_error()
