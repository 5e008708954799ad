"""Which node of a simulation hosts which client.

A SuperNode is a worker, a client is a partition. Where all nodes see the run's folder (a
simulation on one machine) any node can host any client, and a round's clients are dealt out so
that nodes finish together. Where they do not, client ``c`` stays on node ``c mod M``, next to the
state it keeps there. Neither choice changes a bit of the result, only who computes it.

Deployed nodes are not dealt out: see :mod:`fedsuite.nodes.deployed`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite.config import RunConfig
from fedsuite.core.messages import write_instructions

QUERY_TIMEOUT = 600.0
WAIT_FOR_NODES = 60.0


@dataclass(frozen=True)
class Node:
    """A connected SuperNode as it describes itself."""

    node_id: int
    place: int
    places: int
    shares_disk: bool


def balanced(clients: Iterable[int], loads: Mapping[int, float], num_nodes: int) -> list[list[int]]:
    """Deal clients to nodes, largest first, each to the node with the least to do so far."""
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
    """The nodes of a simulation, learnt by asking each one once; each can host any client."""

    time_limit = None

    def __init__(self, sizes: Mapping[int, int] | None = None) -> None:
        self.message_header: dict[str, str] = {}
        self.identities: dict[str, int] = {}
        self._sizes = dict(sizes or {})
        self._known: dict[int, Node] = {}
        self._nodes: list[Node] = []

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Tell nodes the run's settings and its folder, which they share."""
        self.message_header = {
            "run": config.to_json(),
            "run-id": run_id,
            "run-dir": str(folder),
        }

    def save(self, folder: Path) -> None:
        """Keep nothing: the settings say it all."""

    def meet(self, grid: Grid) -> None:
        """Learn the nodes, which open their data when asked."""
        self.refresh(grid)

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Wait for nobody: workers do not come and go."""
        return config.num_clients

    def client_sizes(self) -> dict[int, int]:
        """Return the sizes of the clients' parts."""
        return self._sizes

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages and wait for all replies."""
        return grid.send_and_receive(messages, timeout=seconds)

    def refresh(self, grid: Grid) -> None:
        """Learn the connected nodes in the order of their places; ask those not met before."""
        deadline = time.monotonic() + WAIT_FOR_NODES
        while True:
            connected = set(grid.get_node_ids())
            self._meet(grid, connected - set(self._known))
            nodes = [self._known[n] for n in connected if n in self._known]
            expected = max((node.places for node in nodes), default=1)
            if len(nodes) >= expected or (nodes and time.monotonic() > deadline):
                self._nodes = sorted(nodes, key=lambda node: (node.place, node.node_id))
                return
            if time.monotonic() > deadline:
                raise ConnectionError(f"no node connected within {WAIT_FOR_NODES:.0f} s")
            time.sleep(0.05)

    def available(self, num_clients: int) -> list[int]:
        """Return the clients that can be reached: all."""
        return list(range(num_clients))

    def assign(self, clients: Sequence[int], loads: Mapping[int, float]) -> dict[int, list[int]]:
        """Return node id -> its cohort, in the order the node should work through it."""
        if all(node.shares_disk for node in self._nodes):
            cohorts = balanced(clients, loads, len(self._nodes))
        else:
            cohorts = fixed(clients, len(self._nodes))
        pairs = zip(self._nodes, cohorts, strict=True)
        return {node.node_id: cohort for node, cohort in pairs if cohort}

    def client_header(self, client: int) -> dict[str, str]:
        """Return what a node must know to host a client: nothing more."""
        return {}

    def news(self) -> list[str]:
        """Return what happened since the last time: nothing, workers do not come and go."""
        return []

    def _meet(self, grid: Grid, strangers: set[int]) -> None:
        if not strangers:
            return
        content = write_instructions(ArrayRecord(), self.message_header, {})
        questions = [Message(content, node, MessageType.QUERY) for node in sorted(strangers)]
        for reply in grid.send_and_receive(questions, timeout=QUERY_TIMEOUT):
            node_id = reply.metadata.src_node_id
            if reply.has_error():
                raise RuntimeError(f"node {node_id} cannot take part: {reply.error.reason}")
            answer = reply.content.config_records["node"]
            self._known[node_id] = Node(
                node_id,
                place=int(answer["place"]),  # type: ignore[arg-type]
                places=int(answer["places"]),  # type: ignore[arg-type]
                shares_disk=bool(answer["shares-disk"]),
            )
