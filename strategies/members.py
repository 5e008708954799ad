"""Deployed nodes: each is one client, with data of its own or one partition, and may come and go.

A node says once who it is. One that holds a partition is the client of that number. One that owns
its data is known by a secret it keeps on its disk, of which the server remembers a hash, so that
it is the same client when it returns, whatever its node id is then.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite import wire
from fedsuite.settings import UserError

log = logging.getLogger("fedsuite")
PARTITION, OWN = "partition", "own"
POLL_SECONDS = 0.5
SETTLE_SECONDS = 5.0
LATE_SECONDS = 60.0
QUERY_SECONDS = 300.0
MAX_TRIES = 3
MAX_PARTITIONS = 100_000
MAX_IDENTITY = 200


class Refused(Exception):
    """A node that cannot take part; the message is a sentence for both sides."""


@dataclass(frozen=True)
class Answer:
    """How a node introduces itself."""

    node_id: int
    kind: str
    place: int = 0
    places: int = 0
    member: str = ""
    description: str = ""


class Members:
    """Which client each connected node is.

    ``question`` is what every node is asked; ``numbers`` are the clients of an earlier part of
    the run; ``check`` looks at a newcomer with its own data and says what does not fit.
    """

    def __init__(
        self,
        question: Mapping[str, str],
        numbers: Mapping[str, int] | None = None,
        check: Callable[[Answer], str] = lambda answer: "",
    ) -> None:
        self.kind = ""
        self.places = 0
        self.numbers = dict(numbers or {})
        self.check = check
        self.answers: dict[int, Answer] = {}
        self.present: dict[int, int] = {}
        self._question = dict(question)
        self._waiting: dict[str, int] = {}
        self._asked: set[int] = set()
        self._tries: dict[int, int] = {}
        self._newcomers: list[Answer] = []
        self._claims: dict[int, list[int]] = {}
        self._refusals: list[str] = []
        self._news: list[str] = []

    @property
    def count(self) -> int:
        """How many clients there are, connected or not."""
        return self.places if self.kind == PARTITION else len(self.numbers)

    def gather(self, grid: Grid, minimum: int, seconds: float) -> None:
        """Wait for the nodes a run starts with: enough, and no more on their way."""
        started = changed = time.monotonic()
        seen: tuple[int, int] = (0, 0)
        while True:
            self._poll(grid)
            now, here = time.monotonic(), len({(a.place, a.member) for a in self._newcomers})
            if (here, len(self._waiting)) != seen:
                seen, changed = (here, len(self._waiting)), now
                log.info("%d nodes are here, %d more are answering", here, len(self._waiting))
            if self._is_complete(here, minimum, now - started, now - changed):
                break
            refused = self._refusals and not here and not self._waiting
            if now - started > seconds or (refused and now - changed > SETTLE_SECONDS):
                raise ConnectionError(self._nobody(here, minimum, seconds))
            time.sleep(POLL_SECONDS)
        self._settle(grid)
        self._news.clear()

    def _is_complete(self, here: int, minimum: int, elapsed: float, quiet: float) -> bool:
        """Say whether a run may start: all partitions, or as many as come within a minute.

        Of nodes with their own data nobody knows how many there will be: those who came, once
        all have answered and nobody new has come for a while.
        """
        if self.kind == PARTITION and minimum > self.places:
            raise UserError(
                f"min-train-clients = {minimum} is not possible: the nodes hold {self.places} "
                f"partitions. Use at most {self.places}."
            )
        if here < max(minimum, 1):
            return False
        if self.kind == PARTITION:
            return here >= self.places or elapsed > LATE_SECONDS
        return quiet > (LATE_SECONDS if self._waiting else SETTLE_SECONDS)

    def refresh(self, grid: Grid) -> None:
        """See who is there now; ask those not met before, without waiting for their answer."""
        self._poll(grid)
        self._settle(grid)

    def await_clients(
        self, grid: Grid, minimum: int, seconds: float, without: Iterable[int] = ()
    ) -> None:
        """Wait until enough clients are there, or for so many seconds."""
        deadline, said, away = time.monotonic() + seconds, False, set(without)
        while True:
            self.refresh(grid)
            here = len(self.present.keys() - away)
            if here >= minimum or time.monotonic() > deadline:
                return
            if not said:
                log.warning("waiting for nodes: %d here, min-train-clients = %d", here, minimum)
                said = True
            time.sleep(POLL_SECONDS)

    def available(self, num_clients: int) -> list[int]:
        """Return the clients that can be reached."""
        return sorted(client for client in self.present if client < num_clients)

    def assign(self, clients: Sequence[int], loads: Mapping[int, float]) -> dict[int, list[int]]:
        """Return node id -> its one client."""
        return {self.present[c]: [c] for c in sorted(clients) if c in self.present}

    def told(self, client: int) -> dict[str, str]:
        """Return what lets a node check that it is meant."""
        return {"member": self.answers[client].member}

    def news(self) -> list[str]:
        """Return what happened since the last time, as sentences."""
        news, self._news = self._news, []
        return news

    # How it is done

    def _poll(self, grid: Grid) -> None:
        connected = set(grid.get_node_ids())
        for nodes in self._claims.values():
            nodes[:] = [node for node in nodes if node in connected]
        self._newcomers = [a for a in self._newcomers if a.node_id in connected]
        strangers = connected - self._asked
        self._asked &= connected
        self._waiting = {m: n for m, n in self._waiting.items() if n in connected}
        if strangers:
            self._ask(grid, sorted(strangers))
        for reply in grid.pull_messages(list(self._waiting)) if self._waiting else ():
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                self._hear(grid, node, reply)

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = wire.write_orders(ArrayRecord(), self._question, {})
        messages = [Message(content, n, MessageType.QUERY, ttl=QUERY_SECONDS) for n in nodes]
        for node, number in zip(nodes, grid.push_messages(messages), strict=True):
            if number:
                self._waiting[number] = node
        self._asked |= set(nodes)

    def _hear(self, grid: Grid, node: int, reply: Message) -> None:
        self._tries[node] = self._tries.get(node, 0) + 1
        if reply.has_error() and self._tries[node] < MAX_TRIES:
            self._asked.discard(node)
            return
        try:
            answer = read_answer(node, reply)
            self._agree(answer)
            self._newcomers.append(answer)
        except Refused as refusal:
            self._refuse(grid, node, str(refusal))

    def _agree(self, answer: Answer) -> None:
        """Refuse a node that contradicts those before it."""
        first = not self.kind
        if first:
            self.kind, self.places = answer.kind, answer.places
        if answer.kind != self.kind:
            have = {PARTITION: "hold partitions", OWN: "have data of their own"}
            raise Refused(
                f"the other nodes {have[self.kind]}, this one does not: start all nodes with "
                "data-path, or all with partition-id and num-partitions"
            )
        if answer.places != self.places:
            raise Refused(
                f"num-partitions = {answer.places} contradicts the other nodes, which have "
                f"num-partitions = {self.places}"
            )
        if self.kind == OWN and self.check(answer):
            raise Refused(self.check(answer))

    def _refuse(self, grid: Grid, node: int, sentence: str) -> None:
        self._refusals.append(f"node {node} cannot take part: {sentence}")
        self._news.append(self._refusals[-1])
        log.warning("%s", self._refusals[-1])
        self._tell(grid, node, sentence)

    def _tell(self, grid: Grid, node: int, sentence: str) -> None:
        """Let a node's own log say it too; nobody waits for the answer."""
        content = wire.write_orders(ArrayRecord(), {"refusal": sentence}, {})
        grid.push_messages([Message(content, node, MessageType.QUERY)])

    def _settle(self, grid: Grid) -> None:
        """Give newcomers their numbers, in an order that does not depend on who came first."""
        for answer in sorted(self._newcomers, key=lambda a: (a.place, a.member, a.node_id)):
            client = answer.place
            if self.kind == OWN:
                client = self.numbers.setdefault(answer.member, len(self.numbers))
            self._claim(grid, client, answer)
        self._newcomers.clear()
        before, self.present = self.present, {c: n[0] for c, n in self._claims.items() if n}
        for client in sorted(before.keys() - self.present.keys()):
            self._news.append(f"client {client} is gone")
        for client in sorted(self.present.keys() - before.keys()):
            self._news.append(f"client {client} is here")

    def _claim(self, grid: Grid, client: int, answer: Answer) -> None:
        """A partition stays with who came first; a secret is proof enough to come back at once."""
        nodes = self._claims.setdefault(client, [])
        if nodes and self.kind == PARTITION:
            sentence = (
                f"partition-id = {client} is held by another node; this one takes part once the "
                "other is gone"
            )
            log.warning("node %d waits: %s", answer.node_id, sentence)
            self._tell(grid, answer.node_id, sentence)
            nodes.append(answer.node_id)
        else:
            nodes.insert(0, answer.node_id)
        self.answers[client] = answer

    def _nobody(self, here: int, minimum: int, seconds: float) -> str:
        if self._refusals and not here:
            first = "no node that came can take part:"
        else:
            first = f"{here} nodes came within {seconds:.0f} s, min-train-clients = {minimum}."
        return "\n".join([first, *self._refusals])


def member_name(identity: str) -> str:
    """Return under which name the server knows the owner of a secret."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def read_answer(node: int, reply: Message) -> Answer:
    """Read how a node introduces itself, believing nothing."""
    if reply.has_error():
        raise Refused(f"it failed to answer: {reply.error.reason}")
    try:
        record = reply.content.config_records["node"]
        if "refusal" in record:
            raise Refused(str(record["refusal"])[:1000])
        if record["kind"] == PARTITION:
            place, places = record["place"], record["places"]
            if not (isinstance(place, int) and isinstance(places, int)):
                raise Refused("its partition is not a number")
            if not 0 <= place < places <= MAX_PARTITIONS:
                raise Refused(f"partition {place} of {places} is not possible")
            return Answer(node, PARTITION, place, places)
        if record["kind"] == OWN:
            identity = str(record["identity"])
            if not 16 <= len(identity) <= MAX_IDENTITY:
                raise Refused("its identity is not possible")
            return Answer(
                node, OWN, member=member_name(identity), description=str(record["description"])
            )
        raise Refused(f"it is of kind {record['kind']!r}, which is not known")
    except KeyError as error:
        raise Refused(f"its answer lacks {error}") from None
