"""Deployed nodes: each is one client, with data of its own or one partition, and may come and go.

A node says once who it is. One that holds a partition is the client of that number. One that owns
its data is known by a secret it keeps on its disk, of which the server remembers a hash, so that
it is the same client when it returns, whatever its node id is then.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedsuite.config import RunConfig, without_paths
from fedsuite.core.files import write_atomically
from fedsuite.core.messages import write_instructions
from fedsuite.core.protocol import OWN, PARTITION
from fedsuite.core.settings import UserError
from fedsuite.nodes.answers import Answer, Refused, read_answer
from fedsuite.nodes.exchange import exchange, pull
from fedsuite.records.folder import RunFolder

log = logging.getLogger("fedsuite")
POLL_SECONDS = 0.5
SETTLE_SECONDS = 5.0
LATE_SECONDS = 60.0
QUERY_SECONDS = 300.0
MAX_TRIES = 3


class DeployedNodes:
    """Which client each connected node is.

    ``question`` is what every node is asked. ``identities`` and ``places`` are those of an
    earlier part of the run. ``check`` looks at a newcomer with its own data and says what does
    not fit; ``form`` says in words what it has: at the start, those who have what most have take
    part. ``agreed`` goes to every node with each message; ``rows`` counts a client's.
    """

    def __init__(
        self,
        question: Mapping[str, str],
        identities: Mapping[str, int] | None = None,
        check: Callable[[Answer], str] = lambda answer: "",
        form: Callable[[Answer], str] = lambda answer: "",
        places: int = 0,
    ) -> None:
        self.kind = OWN if identities else PARTITION if places else ""
        self.places = places
        self.identities = dict(identities or {})
        self.message_header: dict[str, str] = {}
        self.time_limit: float | None = None
        self.agreed: dict[str, str] = {}
        self.rows: Callable[[int], int] = lambda client: 1
        self.check, self.form = check, form
        self._settled = bool(self.kind)
        self.answers: dict[int, Answer] = {}
        self.present: dict[int, int] = {}
        self._question = dict(question)
        self._waiting: dict[str, int] = {}
        self._asked: set[int] = set()
        self._tries: dict[int, int] = {}
        self._newcomers: list[Answer] = []
        self._claims: dict[int, list[int]] = {}
        self._refused: dict[int, tuple[str, float]] = {}
        self._was: dict[int, str] = {}
        self._news: list[str] = []
        self._most: tuple[str, int, str] = ("", 0, "")

    @property
    def count(self) -> int:
        """How many clients there are, connected or not."""
        return self.places if self.kind == PARTITION else len(self.identities)

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Tell nodes the settings without the server's paths, and what was agreed on."""
        run = without_paths(config).to_json()
        self.message_header = {"run": run, "run-id": run_id, **self.agreed}
        self.time_limit = config.round_timeout

    def save(self, folder: Path) -> None:
        """Keep the agreed form of the data, for a resume and for who reads the model later."""
        if "schema" in self.agreed:
            write_atomically(RunFolder(folder).schema_file, self.agreed["schema"].encode())

    def meet(self, grid: Grid) -> None:
        """Do nothing: a run begins with the nodes that :meth:`gather` met."""

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Wait until enough nodes are there; count clients that came later too."""
        self.await_clients(grid, config.min_train_clients, config.round_timeout, expelled)
        return max(self.count, config.num_clients)

    def client_sizes(self) -> dict[int, int]:
        """Return how many rows each client trains on: 1 for who has not said so yet."""
        return {client: self.rows(client) for client in range(self.count)}

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages and wait for the replies of those who answer in time."""
        return exchange(grid, messages, seconds)

    def gather(self, grid: Grid, minimum: int, seconds: float) -> None:
        """Wait for the nodes a run starts with: enough, and no more on their way."""
        started = changed = time.monotonic()
        seen: tuple[int, int] = (0, 0)
        while True:
            self._poll(grid)
            self._follow_most()
            alike = [a for a in self._newcomers if self._contradiction(a) == ""]
            now, here = time.monotonic(), len({(a.place, a.member) for a in alike})
            if (here, len(self._waiting)) != seen:
                seen, changed = (here, len(self._waiting)), now
                log.info("%d nodes are here, %d more are answering", here, len(self._waiting))
            late = now - started > seconds
            if self._is_complete(here, minimum, now - started, now - changed, late):
                break
            refused = self._refused and not here and not self._waiting
            if late or (refused and now - changed > SETTLE_SECONDS):
                raise ConnectionError(self._nobody(here, minimum, seconds))
            time.sleep(POLL_SECONDS)
        self._settle(grid)
        self._news = [sentence for sentence in self._news if " is here" not in sentence]

    def _is_complete(
        self, here: int, minimum: int, elapsed: float, quiet: float, late: bool
    ) -> bool:
        """Say whether a run may start: all partitions, or as many as come within a minute.

        Of nodes with their own data nobody knows how many there will be: those who came, once
        all have answered and nobody new has come for a while.
        """
        if self.kind == PARTITION and minimum > self.places:
            raise UserError(
                f"min-train-clients = {minimum} is not possible: the nodes hold {self.places} "
                f"partitions. Use at most {self.places}."
            )
        if here < max(minimum, 1) or late:
            return here >= max(minimum, 1)
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

    def client_header(self, client: int) -> dict[str, str]:
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
        now = time.monotonic()
        again = {n for n, (_, when) in self._refused.items() if now - when > LATE_SECONDS}
        self._asked = (self._asked & connected) - (again - set(self._waiting.values()))
        strangers = connected - self._asked
        self._waiting = {m: n for m, n in self._waiting.items() if n in connected}
        if strangers:
            self._ask(grid, sorted(strangers))
        for number, node in list(self._waiting.items()):
            for reply in pull(grid, number, node):
                del self._waiting[number]
                self._hear(grid, node, reply)

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = write_instructions(ArrayRecord(), self._question, {})
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
            if answer.kind == OWN and (problem := self.check(answer)):
                raise Refused(problem)
            if self._was.get(node, answer.member) != answer.member:
                raise Refused("it was another client before; start it with the state-dir it had")
            self._newcomers.append(answer)
        except Refused as refusal:
            self._refuse(grid, node, str(refusal))

    def _follow_most(self) -> None:
        """At the start, what most nodes have is what the run has."""
        if self._settled or not self._newcomers:
            return
        votes = Counter(self._stand(answer) for answer in self._newcomers)
        self.kind, self.places, _ = max(votes, key=lambda stand: (votes[stand], stand))
        self._most = max(votes, key=lambda stand: (votes[stand], stand))

    def _stand(self, answer: Answer) -> tuple[str, int, str]:
        return answer.kind, answer.places, self.form(answer) if answer.kind == OWN else ""

    def _contradiction(self, answer: Answer) -> str:
        """Say what a node has that the others do not; empty if it is like them."""
        if (answer.kind, answer.places) != (self.kind, self.places):
            words = {PARTITION: f"num-partitions = {self.places}", OWN: "data of their own"}
            mine = {PARTITION: f"num-partitions = {answer.places}", OWN: "data of its own"}
            return (
                f"it has {mine[answer.kind]}, the other nodes have {words[self.kind]}: start all "
                "with data-path, or all with the same num-partitions"
            )
        if not self._settled and self._stand(answer) != self._most:
            return f"it has {self.form(answer)}, most other nodes have {self._most[2]}"
        return ""

    def _refuse(self, grid: Grid, node: int, sentence: str) -> None:
        """Leave a node out, and ask it again in a while: it may have been started anew."""
        known = self._refused.get(node, ("", 0.0))[0] == sentence
        self._refused[node] = (sentence, time.monotonic())
        if not known:
            self._news.append(f"node {node} cannot take part: {sentence}")
            log.warning("%s", self._news[-1])
            self._tell(grid, node, sentence)

    def _tell(self, grid: Grid, node: int, sentence: str) -> None:
        """Let a node's own log say it too; nobody waits for the answer."""
        content = write_instructions(ArrayRecord(), {"refusal": sentence}, {})
        grid.push_messages([Message(content, node, MessageType.QUERY)])

    def _settle(self, grid: Grid) -> None:
        """Give newcomers their numbers, in an order that does not depend on who came first."""
        for answer in sorted(self._newcomers, key=lambda a: (a.place, a.member, a.node_id)):
            if problem := self._contradiction(answer):
                self._refuse(grid, answer.node_id, problem)
                continue
            self._refused.pop(answer.node_id, None)
            self._was[answer.node_id] = answer.member
            client = answer.place
            if self.kind == OWN:
                client = self.identities.setdefault(answer.member, len(self.identities))
            self._claim(grid, client, answer)
        self._newcomers.clear()
        self._settled = bool(self.kind)
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
        if self._refused and not here:
            first = "no node that came can take part:"
        else:
            first = f"{here} nodes came within {seconds:.0f} s, min-train-clients = {minimum}."
        said = [f"node {node}: {sentence}" for node, (sentence, _) in self._refused.items()]
        return "\n".join([first, *said])
