"""A strategy's data: the run, its nodes, a round's replies and its record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from flwr.serverapp import Grid

from fedsuite.core.class_counts import add_all, read_counts, worst_tenth
from fedsuite.core.compression import UNCOMPRESSED, Compression
from fedsuite.core.messages import Result
from fedsuite.core.transport import ByMessage, Transport
from fedsuite.core.vector import Doubles, Matrix, Vector, sample_weights
from strategies.replies import AUC, snake_case

# Scores of all clients' samples together, recorded as personal_accuracy and so on.
POOLED = ("accuracy", "macro_f1", "balanced_accuracy", "class_accuracy")
NO_TEST_ROWS, DROPPED_OUT = "no test rows", "dropped out"


@dataclass(frozen=True)
class NoParams:
    """An algorithm without settings of its own."""


@dataclass(frozen=True)
class RunInfo:
    """What a strategy needs to know of the run.

    ``probe(model, buffers)`` gives a model's mean class probabilities and accuracy on the
    server's probe set; ``shapes`` names the model's parameters in the order of the flat vector;
    ``plain_sgd``: clients step without momentum and without Adam.
    """

    num_clients: int
    client_sizes: Mapping[int, int]
    seed: int
    num_classes: int = 0
    num_rounds: int = 1
    local_epochs: int = 1
    fraction_train: float = 1.0
    dropout: float = 0.0
    compression: Compression = UNCOMPRESSED
    min_train_clients: int = 1
    server_lr: float = 1.0
    learning_rate: Callable[[int], float] = lambda server_round: 0.01
    eval_every: int = 1
    personal_eval: bool = False
    plain_sgd: bool = True
    momentum: float = 0.0
    probe: Callable[[Vector, Vector], tuple[np.ndarray, float]] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sampled(self) -> int:
        """How many clients are drawn in a round, if they are there."""
        return sample_size(self.num_clients, self.fraction_train, self.min_train_clients)

    def upload_bytes(self, vectors: Mapping[str, np.ndarray], model_size: int) -> int:
        """Return how many bytes a client's vectors have on their way to the server."""
        how = self.compression
        return sum(
            how.nbytes(vector.size) if how.applies(vector.size, model_size) else vector.nbytes
            for vector in vectors.values()
        )


class Hosts(Protocol):
    """What a strategy asks of the nodes that host clients."""

    @property
    def message_header(self) -> Mapping[str, str]:
        """The scalars that identify the run in every message."""

    @property
    def vectors(self) -> Transport:
        """How vectors travel to nodes and back."""

    @property
    def time_limit(self) -> float | None:
        """Seconds after which a message that no node has fetched is void."""

    def refresh(self, grid: Grid) -> None:
        """Update which nodes are connected."""

    def news(self) -> list[str]:
        """Return, as sentences, which nodes joined or left since the last call."""

    def available(self, num_clients: int) -> list[int]:
        """Return the clients that can be reached."""

    def assign(self, clients: Sequence[int], loads: Mapping[int, float]) -> dict[int, list[int]]:
        """Return the clients' cohorts, each in the order of computation, by whom to send them to.

        That is a node's id, or a number that the hosts resolve, if a node gets several cohorts.
        """

    def client_header(self, client: int) -> dict[str, str]:
        """Return the scalars that a node needs to host a client."""


@dataclass
class Round:
    """One round's valid replies, one row per client in client order.

    The matrices are the round's: a strategy copies what it keeps. ``zeros(shape)`` makes a matrix
    to work with, in a file where there is one for the round's own.
    """

    number: int
    model: Vector
    clients: list[int]
    arrays: dict[str, Matrix]
    buffers: Matrix
    num_examples: np.ndarray
    num_steps: np.ndarray
    lr: float
    metrics: list[dict[str, float]] = field(default_factory=list)
    per_client: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    zeros: Callable[[tuple[int, ...]], Matrix] = ByMessage().zeros

    @classmethod
    def of(cls, results: Sequence[Result], arrays: dict[str, Matrix], **about: Any) -> Round:
        """Make a round of valid results and their vectors, whose rows are in the same order."""
        none = np.zeros((len(results), 0), dtype=np.float32)
        return cls(
            clients=[result.client for result in results],
            buffers=arrays.pop("buffers", none),
            arrays=arrays,
            num_examples=np.array([r.metrics["num-examples"] for r in results], dtype=np.float64),
            num_steps=np.array([r.metrics.get("steps", 0.0) for r in results], dtype=np.float64),
            metrics=[result.metrics for result in results],
            **about,
        )

    @property
    def updates(self) -> Matrix:
        """The ``(n, P)`` matrix of ``v_i = w_i - w``."""
        return self.arrays["update"]

    @property
    def weights(self) -> np.ndarray | None:
        """The weights that the method gave the updates; None if it gave none."""
        return self.per_client.get("weight")

    def metric(self, name: str) -> np.ndarray:
        """One number that every client sent, in client order."""
        return np.array([metrics[name] for metrics in self.metrics], dtype=np.float64)


@dataclass
class RoundRecord:
    """What is recorded of a round: its numbers, and a row per client and phase.

    ``is_void``: the clients' updates came to nothing, and the model did not change.
    """

    scalars: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    is_void: bool = False

    def add_note(self, text: str) -> None:
        """Append a sentence to the round's note."""
        earlier = self.scalars.get("note")
        self.scalars["note"] = f"{earlier}; {text}" if earlier else text

    def add_dropouts(self, clients: Sequence[int]) -> None:
        """Record who was sampled and does not answer, as the run's settings will have it."""
        self.scalars["dropped_out"] = len(clients)
        for client in clients:
            self.rows.append({"phase": "train", "client": client, "status": DROPPED_OUT})

    def add_scores(self, results: Sequence[Result], unscored: int = 0) -> dict[str, float]:
        """Add the clients' scores of themselves, one row each; return what they come to.

        A client without test rows has no score and is not ``unscored``, which is how many failed.
        """
        if unscored:
            self.scalars["unscored"] = unscored
        scored = [result for result in results if result.metrics["num-examples"]]
        for result in results:
            if not result.metrics["num-examples"]:
                row = {"phase": "evaluate", "client": result.client, "status": NO_TEST_ROWS}
                self.rows.append(row)
        if not scored:
            return {}
        correct = np.array([result.metrics["correct"] for result in scored])
        total = np.array([result.metrics["num-examples"] for result in scored])
        accuracy = correct / total
        for result, value in zip(scored, accuracy, strict=True):
            own = {"phase": "evaluate", "client": result.client, "status": "ok"}
            counts = read_counts(result.counts)
            score = own | {"accuracy": float(value)} | (counts.scores() if counts else {})
            self.rows.append(score | snake_case(result.metrics) | score)
        scores: dict[str, Any] = {
            "personal_accuracy": float(correct.sum() / total.sum()),
            "personal_mean": float(accuracy.mean()),
            "personal_std": float(accuracy.std()),
            "personal_worst": float(accuracy.min()),
            "personal_best": float(accuracy.max()),
            "personal_worst_tenth": worst_tenth(accuracy),
        }
        areas = [result.metrics[AUC] for result in scored if AUC in result.metrics]
        if areas:
            scores["personal_auc"] = float(np.mean(areas))
        together = add_all(read_counts(result.counts) for result in scored)
        if together:
            scores |= {f"personal_{name}": value for name, value in together.scores().items()}
        self.scalars |= scores
        return {name: value for name, value in scores.items() if isinstance(value, float)}


def round_half_up(value: float) -> int:
    """Round half up: 2.5 to 3."""
    return int(np.floor(value + 0.5))


def sample_size(clients: int, fraction: float, least: int) -> int:
    """Return how many of all clients are drawn in a round, if they are there."""
    return min(max(round_half_up(fraction * clients), least, 1), clients)


def buffer_weights(weights: np.ndarray | None, num_examples: np.ndarray) -> Doubles:
    """Return the shares that float buffers are averaged with: those the method gave the updates.

    Weights are scaled to sum 1, a negative one counts as none; without any, shares by samples.

    >>> buffer_weights(np.array([0.0, 1.5, 0.5]), np.array([8, 1, 1]))
    array([0.  , 0.75, 0.25])
    """
    if weights is None:
        return sample_weights(num_examples)
    given = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    total = given.sum()
    return given / total if 0 < total < np.inf else sample_weights(num_examples)


def copy_state(
    state: Mapping[str, Any], zeros: Callable[[tuple[int, ...]], Matrix]
) -> dict[str, Any]:
    """Copy what a strategy keeps; its rows of clients into matrices that ``zeros`` makes."""
    copied = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == 2:
            copied[name] = zeros(value.shape)
            copied[name][:] = value
        else:
            copied[name] = copy.deepcopy(value)
    return copied


def grow_state(
    state: Mapping[str, Any], fresh: Mapping[str, Any], before: int, after: int
) -> dict[str, Any]:
    """Return a strategy's state with more clients, whose entries are those of a fresh one."""
    grown = dict(state)
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            first = fresh.get(name, np.zeros((after, *value.shape[1:])))
            grown[name] = grow_client_axes(value, first, before, after)
    return grown


def grow_client_axes(old: np.ndarray, first: np.ndarray, before: int, after: int) -> np.ndarray:
    """Return ``old`` with more entries on its axes of clients, those of ``first`` where it has any.

    >>> grow_client_axes(np.array([5.0, 6.0]), np.array([0.1, 0.1, 0.1]), 2, 3)
    array([5. , 6. , 0.1])
    """
    sizes = [
        after if (now, then) == (before, after) else now
        for now, then in zip(old.shape, first.shape, strict=True)
    ]
    new = np.zeros(sizes, dtype=old.dtype)
    overlap = tuple(slice(min(a, b)) for a, b in zip(new.shape, first.shape, strict=True))
    new[overlap] = first[overlap]
    new[tuple(slice(size) for size in old.shape)] = old
    return new
