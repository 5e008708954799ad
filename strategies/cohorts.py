"""Which node hosts which client.

A SuperNode is a worker, a client is a partition. Where all nodes see the run's folder (a
simulation on one machine) any node can host any client, and a round's clients are dealt out so
that nodes finish together. Where they do not, client ``c`` stays on node ``c mod M``, next to the
state it keeps there. Neither choice changes a bit of the result, only who computes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite import wire

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


class Roster:
    """The nodes that take part, learnt by asking each one once."""

    def __init__(self, introduction: Mapping[str, str]) -> None:
        self._introduction = dict(introduction)
        self._known: dict[int, Node] = {}

    def refresh(self, grid: Grid) -> list[Node]:
        """Return the connected nodes in the order of their places; ask those not met before."""
        deadline = time.monotonic() + WAIT_FOR_NODES
        while True:
            connected = set(grid.get_node_ids())
            self._meet(grid, connected - set(self._known))
            nodes = [self._known[n] for n in connected if n in self._known]
            expected = max((node.places for node in nodes), default=1)
            if len(nodes) >= expected or (nodes and time.monotonic() > deadline):
                return sorted(nodes, key=lambda node: (node.place, node.node_id))
            if time.monotonic() > deadline:
                raise ConnectionError(f"no node connected within {WAIT_FOR_NODES:.0f} s")
            time.sleep(0.05)

    def assign(
        self, grid: Grid, clients: Sequence[int], loads: Mapping[int, float]
    ) -> dict[int, list[int]]:
        """Return node id -> its cohort, in the order the node should work through it."""
        nodes = self.refresh(grid)
        if all(node.shares_disk for node in nodes):
            cohorts = balanced(clients, loads, len(nodes))
        else:
            cohorts = fixed(clients, len(nodes))
        pairs = zip(nodes, cohorts, strict=True)
        return {node.node_id: cohort for node, cohort in pairs if cohort}

    def _meet(self, grid: Grid, strangers: set[int]) -> None:
        if not strangers:
            return
        content = wire.write_orders(ArrayRecord(), self._introduction, {})
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
