"""What every client shares: its context, its batches, local training, evaluation.

An algorithm subclasses :class:`Client`, names the vectors it receives and sends, and overrides
what differs: often only :meth:`Client.correct_gradient`, one in-place operation on the flat
gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.client import NumPyClient
from torch import nn
from torch.nn import functional as F

from clients.optim import Optimizer, make_optimizer
from clients.state import ClientState
from fedsuite.core import seeds
from fedsuite.core.compression import UNCOMPRESSED, Compression
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.realism import shorten, straggler_pace
from fedsuite.core.stacked_model import StackRow
from fedsuite.core.vector import Vector
from tasks.evaluation import evaluate
from tasks.task import Task

CHUNK_ROWS = 4096  # gathered at once
ALL = slice(None)
Epochs = list[list[np.ndarray]]  # batches of row numbers
Evaluation = tuple[float, int, dict[str, Any]]  # loss, samples, numbers beside them


@dataclass(frozen=True)
class Training:
    """How a client trains locally."""

    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 32
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    stragglers: float = 0.0
    straggler_min: float = 0.0
    compression: Compression = UNCOMPRESSED


@dataclass(frozen=True)
class ClientContext:
    """A client in one round: its number, its rows, its model workspace, its state.

    ``chunk_rows`` is how many rows it may gather at once; batches are the same with any.
    """

    client: int
    round: int
    seed: int
    task: Task
    model: FlatModel
    initial: Vector
    initial_buffers: Vector
    state: ClientState
    training: Training
    chunk_rows: int = CHUNK_ROWS

    def draw(self, purpose: str) -> np.random.Generator:
        """Return this client's generator for one purpose in this round."""
        return self.draw_for(purpose, self.round)

    def draw_for(self, purpose: str, server_round: int) -> np.random.Generator:
        """Return this client's generator for one purpose in some round."""
        return seeds.generator(self.seed, purpose, server_round, self.client)

    @property
    def train_rows(self) -> np.ndarray:
        """Row numbers this client trains on."""
        return self.task.split.train[self.client]

    @property
    def test_rows(self) -> np.ndarray:
        """Row numbers of this client's own test."""
        return self.task.split.own_test[self.client]


@dataclass(frozen=True)
class Received:
    """What the server sent one client in a round: vectors and scalars by name.

    ``received["model"]`` is a vector, ``received.number("alpha")`` a scalar for this client alone.
    """

    vectors: Mapping[str, Vector]
    config: Mapping[str, Any]

    def __getitem__(self, name: str) -> Vector:
        return self.vectors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.vectors

    @property
    def lr(self) -> float:
        """Local learning rate of the round."""
        return self.number("lr")

    def number(self, name: str) -> float:
        """Return a scalar."""
        return float(self.config[name])

    def integers(self, name: str) -> list[int]:
        """Return a list of whole numbers."""
        return [int(value) for value in self.config[name]]


@dataclass
class Reply:
    """What a client sends after training: vectors by name, and numbers about its round."""

    vectors: dict[str, Vector]
    metrics: dict[str, float]


class Client(NumPyClient):
    """A Flower NumPyClient whose parameters are flat vectors with declared names.

    ``receives`` are the vectors it trains with, ``scores_with`` those it scores itself with.
    ``scores_own``: once trained it scores what it kept, whatever the server makes of the updates.
    ``params`` are the algorithm's settings, the dataclass that its strategy declares. Flower calls
    :meth:`fit` and :meth:`evaluate`; an algorithm overrides :meth:`train_round` and
    :meth:`evaluate_round`, or less.
    """

    receives: ClassVar[tuple[str, ...]] = ("model",)
    scores_with: ClassVar[tuple[str, ...]] = ("model",)
    sends: ClassVar[tuple[str, ...]] = ("update",)
    personal: ClassVar[bool] = False
    scores_own: ClassVar[bool] = False
    params: Any

    def __init__(self, context: ClientContext, params: Any = None) -> None:
        self.context, self.params = context, params
        self.model = context.model

    # What an algorithm overrides

    def train_round(self, received: Received) -> Reply:
        """Train from the received model; answer with the update ``w_i - w``."""
        self.model.load(received["model"])
        metrics = self.train(received.lr)
        update = self.model.vector() - received["model"]
        return Reply({"update": update}, metrics | self.describe(update, received))

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the received model on this client's own test rows."""
        self.model.load(received["model"])
        return self.score()

    def correct_gradient(self) -> None:
        """Change ``self.model.grads`` in place before each step; by default leave it."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return F.cross_entropy(self.model.module(x), y)

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Fill ``self.model.grads`` for a batch and return its loss.

        In a stack, other clients continue meanwhile, until all have asked for theirs.
        """
        if isinstance(self.model, StackRow) and self.stackable:
            return self.model.gradients(x, y)
        loss = self.loss(x, y)
        self.model.backward(loss)
        return loss.detach()

    @property
    def stackable(self) -> bool:
        """Whether it may train in a stack with others, if its model can: its loss is the usual one.

        A client that draws from PyTorch's global generator, which all of a stack share, may not.
        """
        return type(self).loss is Client.loss

    def end_epoch(self) -> None:
        """Act after each local epoch; by default do nothing."""

    def inspect(self, received: Received) -> dict[str, float]:
        """Measure what was received, before and outside the timed training; by default nothing."""
        return {}

    def describe(self, update: Vector, received: Received) -> dict[str, float]:
        """Return the numbers this algorithm sends about an update; by default none."""
        return {}

    def outgoing(self) -> tuple[str, ...]:
        """Return the names of the vectors sent with these settings; by default all."""
        return self.sends

    def beside_model(self) -> dict[str, np.ndarray]:
        """Return what it predicts with beside the model it scored, to be saved; by default {}."""
        return {}

    @staticmethod
    def predictor(module: nn.Module, beside: Mapping[str, torch.Tensor]) -> nn.Module:
        """Return what maps inputs to logits with a saved model and :meth:`beside_model`."""
        return module

    def length(self, name: str) -> int:
        """Return the length of a vector this client sends; by default the model's."""
        return self.model.size

    # What Flower calls

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train for a round; vectors are in the order of their declared names."""
        reply = self.train_round(self.receive(self.receives, parameters, config))
        undeclared = [name for name in reply.vectors if name not in self.sends]
        if undeclared:
            raise ValueError(f"vector '{undeclared[0]}' is not among those sent: {self.sends}")
        vectors = [self.as_sent(reply.vectors[name]) for name in self.outgoing()]
        return vectors, self.num_examples, reply.metrics

    def evaluate(self, parameters: list[Vector], config: dict[str, Any]) -> Evaluation:
        """Score this client's model on its own test rows."""
        return self.evaluate_round(self.receive(self.scores_with, parameters, config))

    @staticmethod
    def receive(
        names: tuple[str, ...], parameters: list[Vector], config: dict[str, Any]
    ) -> Received:
        """Name the vectors of a list."""
        return Received(dict(zip(names, parameters, strict=True)), config)

    # What algorithms use

    def train(self, lr: float) -> dict[str, float]:
        """Run the local epochs or steps from the model as it stands."""
        losses = self.train_on(self.schedule, lr)
        return {"steps": len(losses), "loss": torch.stack(losses).mean().item()}

    def train_on(self, epochs: Epochs, lr: float, part: slice = ALL) -> list[torch.Tensor]:
        """Run some epochs from the model as it stands, and move a part; return the losses."""
        model = self.model
        model.module.train()
        optimizer = self.optimizer(model.weights[part], model.grads[part])
        losses: list[torch.Tensor] = []
        for epoch in epochs:
            for x, y in self.batches(epoch):
                losses.append(self.gradients(x, y))
                self.correct_gradient()
                optimizer.step(lr)
            self.end_epoch()
        return losses

    def as_sent(self, vector: Vector) -> Vector:
        """Return a vector as the server sees it: smaller ones than the model arrive as they are."""
        how = self.context.training.compression
        return how.as_sent(vector) if how.applies(vector.size, self.model.size) else vector

    def optimizer(self, weights: torch.Tensor, grads: torch.Tensor | None = None) -> Optimizer:
        """Return a fresh optimiser that moves ``weights`` along gradients, by default all."""
        how = self.context.training
        grads = self.model.grads if grads is None else grads
        return make_optimizer(how.optimizer, weights, grads, how.momentum, how.weight_decay)

    @cached_property
    def schedule(self) -> Epochs:
        """Return this round's epochs, each a list of batches of rows; steps are one epoch.

        A straggler's are shortened: all that depends on the steps sees those it takes.
        """
        return self.plan("batches")

    def plan(self, purpose: str, num_epochs: int | None = None) -> Epochs:
        """Draw epochs for a purpose; by default as many epochs or steps as the schedule has."""
        how, draw, rows = self.context.training, self.context.draw(purpose), self.rows
        if how.local_steps and num_epochs is None:
            epochs = [step_plan(rows, how.batch_size, how.local_steps, draw)]
        else:
            count = how.local_epochs if num_epochs is None else num_epochs
            epochs = [epoch_plan(rows, how.batch_size, draw) for _ in range(count)]
        if not how.stragglers:
            return epochs
        pace = straggler_pace(how.stragglers, how.straggler_min, self.context.draw("straggler"))
        return shorten(epochs, pace)

    @property
    def rows(self) -> np.ndarray:
        """Row numbers this client trains on; by default all its training rows."""
        return self.context.train_rows

    @property
    def num_examples(self) -> int:
        """Training rows that this client's reply stands for."""
        return len(self.rows)

    @property
    def num_steps(self) -> int:
        """Local steps of this round."""
        return sum(len(epoch) for epoch in self.schedule)

    def batches(self, plan: list[np.ndarray]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield planned batches; rows are gathered in large chunks and cut by slicing."""
        for chunk in _chunks(plan, self.context.chunk_rows):
            x, y = self.context.task.rows(np.concatenate(chunk))
            x, y = x.to(self.model.device), y.to(self.model.device)
            sizes = [len(batch) for batch in chunk]
            yield from zip(x.split(sizes), y.split(sizes), strict=True)

    def tensor(self, vector: Vector) -> torch.Tensor:
        """Copy a vector to the model's device."""
        return torch.tensor(vector, device=self.model.device)

    def score(self) -> Evaluation:
        """Score the model as it stands on this client's own test rows, if it has any."""
        if not len(self.context.test_rows):
            return 0.0, 0, {"correct": 0}
        score = evaluate(self.model, self.context.task, self.context.test_rows)
        return score.loss, score.total, score.to_send()


def epoch_plan(rows: np.ndarray, size: int, draw: np.random.Generator) -> list[np.ndarray]:
    """Cut a shuffled pass into batches; a last batch of one row joins the one before it.

    Batch normalisation cannot train on a single row, and one row makes a poor gradient.
    """
    shuffled = rows[draw.permutation(len(rows))]
    batches = [shuffled[start : start + size] for start in range(0, len(rows), size)]
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [np.concatenate(batches[-2:])]
    return batches


def step_plan(
    rows: np.ndarray, size: int, steps: int, draw: np.random.Generator
) -> list[np.ndarray]:
    """Cut reshuffled passes, laid end to end, into exactly ``steps`` full batches."""
    size = min(size, len(rows))
    passes = -(-steps * size // len(rows))
    order = np.concatenate([draw.permutation(len(rows)) for _ in range(passes)])
    return list(rows[order[: steps * size]].reshape(steps, size))


def _chunks(plan: list[np.ndarray], limit: int) -> Iterator[list[np.ndarray]]:
    chunk: list[np.ndarray] = []
    rows = 0
    for batch in plan:
        if chunk and rows + len(batch) > limit:
            yield chunk
            chunk, rows = [], 0
        chunk.append(batch)
        rows += len(batch)
    if chunk:
        yield chunk
