"""What every strategy shares: sampling, messages, checks of replies, bookkeeping.

An algorithm subclasses :class:`BaseStrategy`, declares its parameters and overrides what differs,
usually :meth:`BaseStrategy.aggregate` alone.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedsuite.core import seeds
from fedsuite.core.messages import (
    Instruction,
    Result,
    read_arrays,
    write_arrays,
    write_instructions,
)
from fedsuite.core.protocol import SAVE_MODEL
from fedsuite.core.realism import drops_out
from fedsuite.core.settings import kebab
from fedsuite.core.transport import ByMessage, Transport
from fedsuite.core.vector import Vector, is_finite, sample_weights, total_bytes, weighted_sum
from strategies.replies import check_score, check_update, read_replies, snake_case
from strategies.round import (
    Hosts,
    NoParams,
    Round,
    RoundRecord,
    RunInfo,
    buffer_weights,
    copy_state,
    grow_state,
)

__all__ = ["BaseStrategy", "NoParams", "Round", "RoundRecord", "RunInfo"]
log = logging.getLogger("fedsuite")


class BaseStrategy(Strategy):
    """A Flower strategy over flat vectors and cohorts of clients."""

    Params: ClassVar[type[Any]] = NoParams
    expects: ClassVar[tuple[str, ...]] = ("update",)
    shares_model: ClassVar[bool] = True
    needs_probe: ClassVar[bool] = False
    needs_metrics: ClassVar[tuple[str, ...]] = ()
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    hosts: Hosts  # set by who runs the strategy, before the first round

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        self.info = info
        self.params = self.Params() if params is None else params
        self.expelled: set[int] = set()
        self.model: Vector = np.zeros(0, dtype=np.float32)
        self.buffers: Vector = np.zeros(0, dtype=np.float32)
        self.checkpoint_round = 0
        self.round_record = RoundRecord()
        self._lr = info.learning_rate(1)
        self.vectors: Transport = ByMessage()
        self._asked: dict[int, list[int]] = {}
        self._bytes_down: dict[int, int] = {}

    # What an algorithm overrides

    def aggregate(self, this_round: Round) -> Vector:
        """Return the next global vector; default ``w + server_lr * sum n_i/n v_i``."""
        return self.step(this_round, sample_weights(this_round.num_examples))

    def aggregate_buffers(self, this_round: Round) -> Vector:
        """Return the next float buffers; default their mean with the weights of the updates."""
        shares = buffer_weights(this_round.weights, this_round.num_examples)
        return weighted_sum(shares, this_round.buffers)

    def training_start(self) -> Vector:
        """Return the model clients train from; by default the global one."""
        return self.model

    def broadcast(self) -> dict[str, Vector]:
        """Return vectors that all clients receive beside the model."""
        return {}

    def instruction(self, client: int) -> Instruction:
        """Return vectors, scalars and settings for one client alone."""
        return Instruction()

    def evaluation_broadcast(self) -> dict[str, Vector]:
        """Return vectors that clients need beside the model to score themselves."""
        return {}

    def evaluation_instruction(self, client: int) -> Instruction:
        """Return what one client alone needs to score itself."""
        return Instruction()

    def lengths(self) -> dict[str, int]:
        """Return the length of each vector a client sends; by default the model's."""
        return {name: self.model.size for name in self.expects}

    @classmethod
    def misfit(cls, params: Any, has_statistics: bool, plain_steps: bool = True) -> str:
        """Return why settings do not fit the model or the local steps; "" if they do."""
        return ""

    @classmethod
    def shortage(cls, params: Any, clients: int, layers: int | None = None) -> str:
        """Return why a round has too few clients, or the model layers; "" if neither has."""
        return ""

    def result(self) -> Vector:
        """Return the model that is this method's result: scored each round, and saved."""
        return self.model

    def other_outputs(self) -> dict[str, Vector]:
        """Return models, by name, that the method could have as its result; scored at the end."""
        return {}

    def kept_files(self) -> dict[str, dict[str, np.ndarray]]:
        """Return files of arrays, by name, that the run's folder keeps; written at the end."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart: arrays, and scalars that JSON can hold."""
        return {"expelled": sorted(self.expelled)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.expelled = set(state["expelled"])

    def grow(self, info: RunInfo) -> None:
        """Add clients that joined later: state per client gets the entries of a fresh start.

        An axis with one entry per client, here and in a new strategy, grows.
        """
        before, fresh = self.info.num_clients, type(self)(info, self.params)
        fresh.model, fresh.buffers = self.model, self.buffers
        self.info = info
        self.load_state(grow_state(self.state(), fresh.state(), before, info.num_clients))

    # What algorithms use

    def step(self, this_round: Round, weights: np.ndarray) -> Vector:
        """Move the model by ``server_lr`` times the weighted sum of updates."""
        return self.advance(this_round, self.combine(this_round, weights))

    def combine(self, this_round: Round, weights: np.ndarray) -> Vector:
        """Return the weighted sum of updates; record the weights, which buffers get too."""
        this_round.per_client["weight"] = weights
        return weighted_sum(weights, this_round.updates)

    def advance(self, this_round: Round, move: Vector) -> Vector:
        """Return ``w + server_lr * move``."""
        if self.info.server_lr != 1.0:
            move = move * np.float32(self.info.server_lr)
        return this_round.model + move

    def too_few(self, replies: int) -> str:
        """Return why so many valid replies do not make a round; "" if they do."""
        least = self.info.min_train_clients
        if replies < least:
            return f"{replies} valid replies, fewer than min-train-clients = {least}"
        return self.shortage(self.params, replies)

    def present(self) -> list[int]:
        """Return the clients that can be reached and are not expelled."""
        reachable = self.hosts.available(self.info.num_clients)
        return [client for client in reachable if client not in self.expelled]

    def sample(self, server_round: int) -> list[int]:
        """Draw the round's clients, the same for the same seed, never an expelled one."""
        present = self.present()
        count = min(self.info.sampled, len(present))
        if count == len(present):
            return present
        draw = seeds.generator(self.info.seed, "sample", server_round)
        return sorted(int(c) for c in draw.choice(present, count, replace=False))

    # Flower's Strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients and send each node its cohort."""
        self._load(arrays)
        self.round_record = RoundRecord()
        self._refresh_nodes(grid)
        scalars: dict[str, Any] = {"lr": self.info.learning_rate(server_round), **config}
        self._lr = float(scalars["lr"])
        clients = self._answering(server_round, self.sample(server_round))
        return self._messages(MessageType.TRAIN, server_round, clients, scalars)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Leave out invalid replies, sort the rest by client and aggregate."""
        valid = self._collect(replies, self._check_train, "train")
        self.round_record.scalars |= {
            "clients": len(valid),
            "failed": sum(len(c) for c in self._asked.values()) - len(valid),
        }
        if too_few := self.too_few(len(valid)):
            self._note_no_change(server_round, too_few)
            return None, MetricRecord({"clients": len(valid)})
        this_round, before = self._round(server_round, valid), set(self.expelled)
        self._aggregate(this_round)
        if self.expelled - before:
            self._note(f"expelled client {', '.join(map(str, sorted(self.expelled - before)))}")
        self._record(this_round, valid)
        metrics = {"clients": len(valid), "train-loss": self.round_record.scalars["train_loss"]}
        return self.arrays(), MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client to score itself, when that is due, or to save the model it scores."""
        last = server_round == self.info.num_rounds
        due = last or server_round % self.info.eval_every == 0
        if not (due and self.info.personal_eval) and SAVE_MODEL not in config:
            self._asked = {}
            return []
        self._load(arrays)
        self._refresh_nodes(grid)
        scalars = {"lr": self.info.learning_rate(server_round), **config}
        return self._messages(MessageType.EVALUATE, server_round, self.present(), scalars)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Summarise the clients' own scores."""
        if not self._asked:
            return None
        valid = self._collect(replies, lambda r: check_score(r, self.info.num_classes), "evaluate")
        asked = sum(len(cohort) for cohort in self._asked.values())
        if len(valid) < asked:
            self._note(f"round {server_round}: {asked - len(valid)} of {asked} clients unscored")
        scores = self.round_record.add_scores(valid, asked - len(valid))
        return MetricRecord({kebab(n): value for n, value in scores.items()}) if scores else None

    def collect_saved(self, replies: Iterable[Message]) -> list[int]:
        """Return the clients that have saved their models."""
        return [result.client for result in self._collect(replies, lambda result: "", "save")]

    def summary(self) -> None:
        """Log the settings of this strategy."""
        log.info("%s %s", type(self).__name__, self.params)

    def arrays(self) -> ArrayRecord:
        """Return the current model as Flower carries it."""
        vectors = {"model": self.model}
        return write_arrays(vectors | ({"buffers": self.buffers} if self.buffers.size else {}))

    # Internals

    def _load(self, arrays: ArrayRecord) -> None:
        vectors = read_arrays(arrays)
        self.model = vectors["model"]
        self.buffers = vectors.get("buffers", np.zeros(0, dtype=np.float32))

    def _refresh_nodes(self, grid: Grid) -> None:
        """Update which nodes are connected, and note which joined and left."""
        self.hosts.refresh(grid)
        self._note_news()

    def _note_news(self) -> None:
        for sentence in self.hosts.news():
            self._note(sentence)

    def _answering(self, server_round: int, sampled: list[int]) -> list[int]:
        """Return who does not drop out, and record the others; they are not asked."""
        share, seed = self.info.dropout, self.info.seed
        lost = [c for c in sampled if drops_out(share, seed, server_round, c)]
        if share:
            self.round_record.add_dropouts(lost)
        return [client for client in sampled if client not in lost]

    def _messages(
        self, kind: str, server_round: int, clients: list[int], scalars: Mapping[str, Any]
    ) -> list[Message]:
        training, self.vectors = kind == MessageType.TRAIN, self.hosts.vectors
        shared = self.broadcast() if training else self.evaluation_broadcast()
        own = self.instruction if training else self.evaluation_instruction
        if self.shares_model:
            shared |= {"model": self.training_start() if training else self.result()}
            shared |= {"buffers": self.buffers} if self.buffers.size else {}
        config = {
            **self.hosts.message_header,
            **scalars,
            "round": server_round,
            "checkpoint-round": self.checkpoint_round,
        }
        self._asked = self.hosts.assign(clients, self.info.client_sizes)
        self.vectors.begin(self._expected() if training else {}, clients)
        packed, common = self.vectors.pack(shared), total_bytes(shared)
        messages, self._bytes_down = [], {}
        for node, cohort in self._asked.items():
            instructions = ((c, self._hosted(c, own(c), common)) for c in cohort)
            content = write_instructions(packed, config, instructions, self.vectors.pack)
            limit, group = self.hosts.time_limit, str(server_round)
            messages.append(Message(content, node, kind, ttl=limit, group_id=group))
        return messages

    def _hosted(self, client: int, own: Instruction, common: int) -> Instruction:
        """Add what a node must know to host a client; count the bytes that the client receives."""
        self._bytes_down[client] = common + total_bytes(own.arrays)
        header, places = self.hosts.client_header(client), self.vectors.places(client)
        return dataclasses.replace(own, config=own.config | header, places=places)

    def _collect(
        self,
        replies: Iterable[Message],
        check: Callable[[Result], str],
        phase: str,
    ) -> list[Result]:
        """Return valid results in client order; count, log and name the others."""
        self._note_news()
        results, unrequested = read_replies(replies, self._asked, self.vectors.read)
        for client, reason in unrequested:
            self._reject(phase, client, reason)
        valid = []
        for result in results:
            problem = result.error or check(result)
            if problem:
                self._reject(phase, result.client, problem)
            else:
                valid.append(result)
        return valid

    def _expected(self) -> dict[str, int]:
        """Return the length of each vector of a result, float buffers included."""
        has_buffers = self.buffers.size and self.shares_model
        return self.lengths() | ({"buffers": self.buffers.size} if has_buffers else {})

    def _check_train(self, result: Result) -> str:
        return check_update(result, self._expected(), self.needs_metrics, self.limits)

    def _round(self, number: int, valid: list[Result]) -> Round:
        arrays, zeros = self.vectors.matrices(valid), self.vectors.zeros
        return Round.of(valid, arrays, number=number, model=self.model, lr=self._lr, zeros=zeros)

    def _aggregate(self, this_round: Round) -> None:
        before = copy_state(self.state(), this_round.zeros)
        with np.errstate(over="ignore", invalid="ignore"):
            model = np.asarray(self.aggregate(this_round), dtype=np.float32)
        kept = [value for value in self.state().values() if isinstance(value, np.ndarray)]
        if not all(map(is_finite, [model, *kept])):
            self._note_no_change(this_round.number, "the aggregate is not finite")
            self.load_state(before)
            self.round_record.is_void = True
            return
        self.model = model
        if self.buffers.size and self.shares_model:
            self.buffers = self.aggregate_buffers(this_round)

    def _record(self, this_round: Round, valid: list[Result]) -> None:
        seconds = [result.metrics.get("seconds", 0.0) for result in valid]
        uploads = {r.client: self.info.upload_bytes(r.arrays, self.model.size) for r in valid}
        losses = np.array([result.metrics.get("loss", 0.0) for result in valid])
        on_cpu = [r.metrics["cpu-seconds"] for r in valid if "cpu-seconds" in r.metrics]
        self.round_record.scalars |= {
            "train_loss": float(sample_weights(this_round.num_examples) @ losses),
            "compute_seconds": max(seconds),
            "client_compute_seconds": sum(seconds),
            "client_cpu_seconds": sum(on_cpu) if len(on_cpu) == len(valid) else None,
            "upload_bytes": sum(uploads.values()),
            "download_bytes": sum(self._bytes_down.values()),
            "lr": this_round.lr,
            "expelled": len(self.expelled),
            **this_round.scalars,
        }
        for index, result in enumerate(valid):
            extra = {name: float(values[index]) for name, values in this_round.per_client.items()}
            row = {"phase": "train", "client": result.client, "status": "ok"}
            row |= snake_case(result.metrics) | row | {"upload_bytes": uploads[result.client]}
            self.round_record.rows.append(row | extra)

    def _reject(self, phase: str, client: int, reason: str) -> None:
        log.warning("client %d left out (%s): %s", client, phase, reason.splitlines()[-1])
        self.round_record.rows.append(
            {"phase": phase, "client": client, "status": "failed", "reason": reason}
        )

    def _note_no_change(self, server_round: int, why: str) -> None:
        self._note(f"round {server_round}: {why.rstrip('.')}; the model does not change")

    def _note(self, text: str) -> None:
        log.warning("%s", text)
        self.round_record.add_note(text)
