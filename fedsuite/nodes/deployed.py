"""Deployed nodes: each is one client, with one partition or data of its own, and may come and go.

A node with a partition is the client of that number. A node with data of its own is identified by a
secret that it keeps on its disk and of which the server keeps a hash, so that it is the same client
when it returns, whatever its node id is then.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import Grid

from fedsuite.config import RunConfig, without_paths
from fedsuite.core.files import write_atomically
from fedsuite.core.messages import read_round, read_state_round
from fedsuite.core.protocol import OWN, PARTITION
from fedsuite.core.settings import UserError
from fedsuite.core.text import clean_line, counted
from fedsuite.core.transport import ByMessage
from fedsuite.nodes.exchange import Scores, exchange
from fedsuite.nodes.queries import Answer, NodeQueries, Refused, read_answer
from fedsuite.records.folder import RunFolder

log = logging.getLogger("fedsuite")
POLL_SECONDS = 0.5
SETTLE_SECONDS = 5.0
ALONE_SECONDS = 20.0
LATE_SECONDS = 60.0
Form = tuple[str, int, str]  # kind, num-partitions, the data in words


class DeployedNodes:
    """Which client each connected node is.

    ``question`` is what every node is asked. ``identities`` (owner -> client), ``num_partitions``
    and ``state_rounds`` are known when a run is resumed. ``check`` returns what is wrong with the
    data of a node, ``describe`` what data it has, in words: at the start, nodes take part that
    have what the majority has. ``excess`` returns, node -> why, which of several nodes claim more
    than all may have together. ``agreed`` is sent with every message; ``rows`` returns how many
    rows a client trains on.
    """

    share_disk = False

    def __init__(
        self,
        question: Mapping[str, str],
        identities: Mapping[str, int] | None = None,
        check: Callable[[Answer], str] = lambda answer: "",
        describe: Callable[[Answer], str] = lambda answer: "",
        num_partitions: int = 0,
        excess: Callable[[Sequence[Answer]], dict[int, str]] = lambda answers: {},
        state_rounds: Mapping[int, int] | None = None,
    ) -> None:
        self.kind = OWN if identities else PARTITION if num_partitions else ""
        self.num_partitions = num_partitions
        self.identities = dict(identities or {})
        self.message_header: dict[str, str] = {}
        self.time_limit: float | None = None
        self.vectors = ByMessage()
        self.agreed: dict[str, str] = {}
        self.rows: Callable[[int], int] = lambda client: 1
        self.check, self.describe, self.excess = check, describe, excess
        self.state_rounds = dict(state_rounds or {})  # client -> its newest state
        self.answers: dict[int, Answer] = {}  # client -> what its node said last
        self.present: dict[int, int] = {}  # client -> its connected node
        self._queries = NodeQueries(question)
        self._scores = Scores()
        self._newcomers: list[Answer] = []
        self._claims: dict[int, list[int]] = {}  # client -> its nodes, the one that is it first
        self._owners: dict[int, str] = {}  # node -> owner
        self._without_state: set[int] = set()
        self._is_settled = bool(self.kind)
        self._majority: Form = ("", 0, "")
        self._news: list[str] = []

    # The contract with the training loop

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Send nodes the settings without the server's paths, and what was agreed."""
        run = without_paths(config).to_json()
        self.message_header = {"run": run, "run-id": run_id, **self.agreed}
        self.time_limit = config.round_timeout

    def sharing_vectors(self, folder: Path) -> AbstractContextManager[None]:
        """Share nothing: vectors travel inside messages."""
        return nullcontext()

    def save(self, folder: Path) -> None:
        """Keep the agreed schema of the data, for a resume and for users of the model."""
        if "schema" in self.agreed:
            write_atomically(RunFolder(folder).schema_file, self.agreed["schema"].encode())

    def meet(self, grid: Grid) -> None:
        """Do nothing: a run begins with the nodes that :meth:`gather` met."""

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Wait for ``min-train-clients``; return the number of clients, new ones included."""
        self.await_clients(grid, config.min_train_clients, config.round_timeout, expelled)
        return max(self.count, config.num_clients)

    def client_sizes(self) -> dict[int, int]:
        """Return how many rows each client trains on: 1 if it is not known yet."""
        return {client: self.rows(client) for client in range(self.count)}

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages; return the replies that arrive in time."""
        clients = {node: client for client, node in self.present.items()}
        server_round = max((read_round(message.content) for message in messages), default=0)
        known, others = self._scores.answer(messages)
        replies = exchange(grid, others, seconds)
        for reply in replies:
            if not reply.has_error() and reply.metadata.src_node_id in clients:
                client = clients[reply.metadata.src_node_id]
                self._note_state(client, read_state_round(reply.content, client, server_round))
                self._scores.note(reply, client, server_round)
        return [*known, *replies]

    def refresh(self, grid: Grid) -> None:
        """Find out which nodes are connected; ask the new ones without waiting for an answer."""
        self._poll(grid)
        self._settle(grid)

    def available(self, num_clients: int) -> list[int]:
        """Return the clients whose nodes are connected."""
        return sorted(client for client in self.present if client < num_clients)

    def assign(self, clients: Sequence[int], loads: Mapping[int, float]) -> dict[int, list[int]]:
        """Return node id -> its one client."""
        return {self.present[c]: [c] for c in sorted(clients) if c in self.present}

    def client_header(self, client: int) -> dict[str, str]:
        """Return what lets a node check that a message is meant for it, and its state complete."""
        header = {"owner": self.answers[client].owner}
        known = self.state_rounds.get(client)
        return header | ({"state-round": str(known)} if known else {})

    def news(self) -> list[str]:
        """Return what has happened since the last call, as sentences."""
        news, self._news = self._news, []
        return news

    # The start of a run, and waiting

    @property
    def count(self) -> int:
        """The number of clients, connected or not."""
        return self.num_partitions if self.kind == PARTITION else len(self.identities)

    def gather(self, grid: Grid, minimum: int, seconds: float) -> None:
        """Wait for the nodes a run starts with: at least ``minimum``, and all that are coming."""
        wait, seen = _Wait(), (0, 0)
        while True:
            self._poll(grid)
            self._follow_majority()
            misfits = self._misfits()
            fitting = [a for a in self._newcomers if a.node_id not in misfits]
            here, pending = len({(a.partition_id, a.owner) for a in fitting}), self._queries.pending
            if (here, pending) != seen:
                seen = (here, pending)
                log.info("%s here, %d more answering", counted(here, "node"), pending)
            wait.note(here, *self._queries.progress)
            is_late = wait.seconds > seconds
            if self._is_complete(here, minimum, wait, is_late):
                break
            all_refused = self._queries.refused and not here and not pending
            if is_late or (all_refused and wait.quiet > SETTLE_SECONDS):
                raise ConnectionError(self._too_few(here, minimum, seconds))
            time.sleep(POLL_SECONDS)
        self._settle(grid)
        self._news = [sentence for sentence in self._news if sentence.startswith("node ")]

    def _is_complete(self, here: int, minimum: int, wait: _Wait, is_late: bool) -> bool:
        """Return whether a run may start: never before all connected nodes have answered.

        A node that does not answer is waited for a minute, and all such nodes together for a minute
        in which the run could have started. With partitions: when all are here, or those that come
        within a minute of the first. With data of their own the number of nodes is unknown: when
        none has connected for a while.
        """
        enough = here >= max(minimum, 1)
        is_all = self.kind != PARTITION or here >= self.num_partitions
        is_here = is_all or wait.since_first > LATE_SECONDS
        wait.note_ready(enough and is_here)
        is_pending = self._queries.pending_since(LATE_SECONDS) and not wait.is_over
        if is_late or is_pending:
            return is_late and enough
        if not is_here or wait.quiet < self._doubt_seconds(here):
            return False
        if self.kind == PARTITION and minimum > self.num_partitions:
            raise UserError(
                f"invalid value '{minimum}' for min-train-clients: the nodes have "
                f"{counted(self.num_partitions, 'partition')}. Use at most {self.num_partitions}."
            )
        return enough

    def _doubt_seconds(self, here: int) -> float:
        """Return how long to wait for other nodes when all that are known of are here.

        Two nodes or more that agree on the number of partitions are believed at once. One that is
        alone may be misconfigured, and the others about to connect.
        """
        agree = len(set(map(self._form, self._newcomers))) == 1
        if self.kind == PARTITION and (self._is_settled or (agree and here > 1)):
            return 0.0
        return ALONE_SECONDS if here == 1 and not self._is_settled else SETTLE_SECONDS

    def await_clients(
        self, grid: Grid, minimum: int, seconds: float, without: Iterable[int] = ()
    ) -> None:
        """Wait up to ``seconds`` until ``minimum`` clients are connected, ``without`` aside."""
        deadline, warned, aside = time.monotonic() + seconds, False, set(without)
        while True:
            self.refresh(grid)
            here = len(self.present.keys() - aside)
            if here >= minimum or time.monotonic() > deadline:
                return
            if not warned:
                log.warning("waiting for nodes: %d here, min-train-clients = %d", here, minimum)
                warned = True
            time.sleep(POLL_SECONDS)

    def _too_few(self, here: int, minimum: int, seconds: float) -> str:
        refused = self._queries.refused
        if refused and not here:
            first = "no connected node can take part:"
        else:
            found = f"{counted(here, 'node')} in {seconds:.0f} s"
            first = f"{found}, fewer than min-train-clients = {minimum}."
        return "\n".join([first, *(f"node {node}: {why}" for node, why in refused.items())])

    # Who is which client

    def _poll(self, grid: Grid) -> None:
        """Read the answers that have arrived; forget nodes that have disconnected."""
        connected = set(grid.get_node_ids())
        for nodes in self._claims.values():
            nodes[:] = [node for node in nodes if node in connected]
        self._newcomers = [a for a in self._newcomers if a.node_id in connected]
        for node, reply in self._queries.poll(grid, connected):
            try:
                self._newcomers.append(self._checked(read_answer(node, reply)))
            except Refused as refusal:
                self._refuse(grid, node, str(refusal))

    def _checked(self, answer: Answer) -> Answer:
        if answer.kind == OWN and (problem := self.check(answer)):
            raise Refused(problem)
        if self._owners.get(answer.node_id, answer.owner) != answer.owner:
            raise Refused("it was another client before; start it with the state-dir it had")
        return answer

    def _follow_majority(self) -> None:
        """Before the first round: take the kind of data that most nodes have."""
        if self._is_settled or not self._newcomers:
            return
        votes = Counter(self._form(answer) for answer in self._newcomers)
        self._majority = max(votes, key=lambda form: (votes[form], form))
        self.kind, self.num_partitions, _ = self._majority

    def _form(self, answer: Answer) -> Form:
        words = self.describe(answer) if answer.kind == OWN else ""
        return answer.kind, answer.num_partitions, words

    def _contradiction(self, answer: Answer) -> str:
        """Return how a node's data differs from the other nodes'; "" if it does not."""
        if (answer.kind, answer.num_partitions) != (self.kind, self.num_partitions):
            theirs = {PARTITION: f"num-partitions = {self.num_partitions}", OWN: "data-path"}
            its = {PARTITION: f"num-partitions = {answer.num_partitions}", OWN: "data-path"}
            return (
                f"it has {its[answer.kind]}, the other nodes have {theirs[self.kind]}: start all "
                "with data-path, or all with the same num-partitions"
            )
        if not self._is_settled and self._form(answer) != self._majority:
            return f"it has {self.describe(answer)}, most other nodes have {self._majority[2]}"
        return ""

    def _misfits(self) -> dict[int, str]:
        """Return which new nodes cannot take part with the others, and why."""
        found = {a.node_id: why for a in self._newcomers if (why := self._contradiction(a))}
        if self.kind == OWN and not self._is_settled:
            found |= self.excess([a for a in self._newcomers if a.node_id not in found])
        return found

    def _note_state(self, client: int, newest: int | None) -> None:
        """Remember what state a client has; say so once if it has lost what it had."""
        known = self.state_rounds.get(client, 0)
        if newest is None:
            return
        if newest >= known:
            self._without_state.discard(client)
            self.state_rounds |= {client: newest} if newest else {}
        elif client not in self._without_state:
            self._without_state.add(client)
            self._news.append(
                f"client {client} has lost its state of round {known}: restore its node's "
                "state-dir from a copy"
            )

    def _refuse(self, grid: Grid, node: int, reason: str) -> None:
        """Refuse a node on both sides, in one clean line, whatever the node wrote."""
        reason = clean_line(reason)
        if self._queries.refuse(grid, node, reason):
            self._news.append(f"node {node} cannot take part: {reason}")
            log.warning("%s", self._news[-1])

    def _settle(self, grid: Grid) -> None:
        """Number the new nodes, in an order that does not depend on who connected first."""
        order = sorted(self._newcomers, key=lambda a: (a.partition_id, a.owner, a.node_id))
        misfits = self._misfits()
        for answer in order:
            if answer.node_id in misfits:
                self._refuse(grid, answer.node_id, misfits[answer.node_id])
                continue
            self._queries.accept(answer.node_id)
            self._owners[answer.node_id] = answer.owner
            client = answer.partition_id
            if self.kind == OWN:
                client = self.identities.setdefault(answer.owner, len(self.identities))
            self._claim(grid, client, answer)
        self._newcomers.clear()
        self._is_settled = bool(self.kind)
        before, self.present = self.present, {c: n[0] for c, n in self._claims.items() if n}
        for client in sorted(before.keys() - self.present.keys()):
            self._news.append(f"client {client} is gone")
        for client in sorted(self.present.keys() - before.keys()):
            self._news.append(f"client {client} is here")

    def _claim(self, grid: Grid, client: int, answer: Answer) -> None:
        """Give a client to its node: of several with a partition the first, of an owner's the last.

        Only the owner has its secret, so a second node with it is the same one, restarted.
        """
        nodes = self._claims.setdefault(client, [])
        if nodes and self.kind == PARTITION:
            sentence = (
                f"partition-id = {client} belongs to another connected node; this one takes part "
                "when the other disconnects"
            )
            log.warning("node %d waits: %s", answer.node_id, sentence)
            self._queries.tell(grid, answer.node_id, sentence)
            nodes.append(answer.node_id)
        else:
            nodes.insert(0, answer.node_id)
        self.answers[client] = answer


class _Wait:
    """How long ago something happened while nodes are waited for, in seconds."""

    def __init__(self) -> None:
        self._now = self._began = self._connection = self._answer = time.monotonic()
        self._first = self._ready = inf
        self._here = self._met = self._answered = 0

    def note(self, here: int, met: int, answered: int) -> None:
        """Note how many nodes can take part, and how many have ever connected and answered."""
        self._now = time.monotonic()
        if here and self._first == inf:
            self._first = self._now
        if met > self._met:
            self._connection = self._now
        if here > self._here or answered > self._answered:
            self._answer = self._now
        self._here, self._met, self._answered = max(here, self._here), met, answered

    def note_ready(self, is_ready: bool) -> None:
        """Note whether the run could start, were it not for nodes that may yet answer."""
        self._ready = min(self._ready, self._now) if is_ready else inf

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._now - self._began

    @property
    def since_first(self) -> float:
        """Since the first node that can take part answered; negative if none has."""
        return self._now - self._first

    @property
    def is_over(self) -> bool:
        """Whether nodes that do not answer have been waited for long enough."""
        return self._now - self._ready >= LATE_SECONDS

    @property
    def quiet(self) -> float:
        """Since a node answered, or connected while such nodes are waited for."""
        return self._now - (self._answer if self.is_over else max(self._answer, self._connection))
