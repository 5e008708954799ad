"""What a process computes clients with: data, model, and the algorithm's clients themselves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.numpy import save as save_tensors

from clients.attacker import attacking
from clients.base import CHUNK_ROWS, Client, ClientContext, Training
from clients.freeloader import freeloading
from clients.state import PRIVATE, ClientState
from fedsuite import registry
from fedsuite.config import RunConfig, params_of
from fedsuite.core import seeds
from fedsuite.core.compression import Compression
from fedsuite.core.files import write_atomically
from fedsuite.core.flat_model import FlatModel, best_device
from fedsuite.core.lockstep import Outcome
from fedsuite.core.messages import Instruction, Result
from fedsuite.core.settings import UserError
from fedsuite.core.stacked_model import stack_model
from fedsuite.inference.description import ModelDescription
from fedsuite.records.folder import RunFolder
from tasks.models import build_model
from tasks.task import Task

GATHERED_BYTES = 64 * 2**20  # by all clients of a stack, or a batch of each
RECEIVED_BYTES = 256 * 2**20  # by all clients of a stack


class Worker:
    """What a process keeps between messages of a run."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        self.config, self.task = config, task
        module = build_model(config.model, self.task.shape, seeds.integer(config.seed, "model"))
        device = pick_device(config.device)
        self.stack = stack_model(module, device)
        self.model = self.stack.row(0) if self.stack else FlatModel(module, device)
        self.initial, self.initial_buffers = self.model.vector(), self.model.buffer_vector()
        self.client_class = registry.find(config.algo).client
        self.params = params_of(config)
        self.freeloaders = set(config.freeloader_ids)
        self.attackers = set(config.attacker_ids)
        self.training = Training(
            config.local_epochs,
            config.local_steps,
            config.batch_size,
            config.optimizer,
            config.momentum,
            config.weight_decay,
            config.stragglers,
            config.straggler_min,
            Compression(config.compression, config.compression_share),
        )
        room = GATHERED_BYTES // (task.row_bytes * (self.stack.capacity if self.stack else 1))
        self.chunk_rows = min(room, CHUNK_ROWS)

    def client(self, number: int, instruction: Instruction, folder: Path, row: int = 0) -> Client:
        """Build one client for one round, with its settings and, in a stack, its row of that."""
        cls = self.client_class
        if number in self.freeloaders:
            cls = freeloading(cls, self.config.freeloader_noise)
        elif number in self.attackers:
            cls = attacking(cls, self.config.attack, self.config.attack_strength)
        config = instruction.config
        server_round = int(config["round"])
        known = int(config.get("state-round", 0))
        state = ClientState(folder, number, server_round, int(config["checkpoint-round"]), known)
        context = ClientContext(
            client=number,
            round=server_round,
            seed=self.config.seed,
            task=self.task,
            model=self.stack.row(row) if self.stack else self.model,
            initial=self.initial,
            initial_buffers=self.initial_buffers,
            state=state,
            training=self.training,
            chunk_rows=self.chunk_rows,
        )
        return cls(context, dataclasses.replace(self.params, **instruction.params))

    def may_stack(self, client: Client) -> bool:
        """Return whether a client may train together with others."""
        return self.stack is not None and client.stackable

    def is_full(self, jobs: list[Job]) -> bool:
        """Return whether a stack has as many clients as it holds, or as memory allows."""
        assert self.stack
        received = sum(job.received_bytes for job in jobs)
        return len(jobs) == self.stack.capacity or received >= RECEIVED_BYTES

    def threads(self, client: Client) -> int:
        """Return how many threads compute: one for a stack, whose bits depend on it."""
        return 1 if self.may_stack(client) else self.config.client_threads

    def fit(self, client: Client, instruction: Instruction) -> Result:
        """Train one client by itself and measure it."""
        context, watch = client.context, Stopwatch(self.model.device)
        self.model.seed(seeds.integer(self.config.seed, "torch", context.round, context.client))
        result = self._train(watch, client, instruction)
        return dataclasses.replace(result, metrics=result.metrics | watch.read())

    def fit_together(self, jobs: list[Job]) -> Iterator[Result | Exception]:
        """Train clients as one stack; yield what became of each.

        A client's time is its part of the stack's, by the gradients that it asked for.
        """
        assert self.stack
        before, watch = torch.get_rng_state(), Stopwatch(self.model.device)
        outcomes = self.stack.run(
            [partial(self._train, watch, job.client, job.instruction) for job in jobs]
        )
        spent, parts = watch.read(), sum(outcome.asked + 1 for outcome in outcomes)
        if not torch.equal(before, torch.get_rng_state()):
            problem = UserError(
                f"{type(jobs[0].client).__name__} draws from PyTorch's global generator, which "
                "clients that train together share. Use self.context.draw, or let its property "
                "`stackable` return False."
            )
            outcomes = [Outcome(error=outcome.error or problem) for outcome in outcomes]
        for outcome in outcomes:
            part = (outcome.asked + 1) / parts
            times = {name: seconds * part for name, seconds in spent.items()}
            yield outcome.error or dataclasses.replace(
                outcome.value, metrics=outcome.value.metrics | times
            )

    def _train(self, watch: Stopwatch, client: Client, instruction: Instruction) -> Result:
        """Let a client inspect what it received, then train; only this is timed."""
        with watch.paused():
            self._load_buffers(client, instruction)
            parameters = [instruction.arrays[name] for name in client.receives]
            seen = client.inspect(client.receive(client.receives, parameters, instruction.config))
        arrays, count, metrics = client.fit(parameters, instruction.config)
        named = dict(zip(client.outgoing(), arrays, strict=True))
        if "buffers" in instruction.arrays:
            named["buffers"] = client.model.buffer_vector()
        how, size = self.training.compression, client.model.size
        forms = {name: how for name, vector in named.items() if how.applies(vector.size, size)}
        numbers = {**seen, **metrics, "num-examples": count}
        return Result(client.context.client, named, numbers, forms=forms)

    def evaluate(self, client: Client, instruction: Instruction) -> Result:
        """Score one client."""
        self._load_buffers(client, instruction)
        parameters = [instruction.arrays[name] for name in client.scores_with]
        loss, count, metrics = client.evaluate(parameters, instruction.config)
        counts = {name: value for name, value in metrics.items() if isinstance(value, list)}
        numbers = {name: value for name, value in metrics.items() if name not in counts}
        numbers |= {"num-examples": count, "loss": loss}
        return Result(client.context.client, {}, numbers, counts=counts)

    def save(self, client: Client, files: RunFolder) -> None:
        """Write a client's model as it was scored last, and what it predicts with beside it."""
        number = client.context.client
        files.client_models.mkdir(parents=True, exist_ok=True)
        tensors, extra = client.model.named_tensors(), client.beside_model()
        write_atomically(files.client_model_file(number), save_tensors(tensors), PRIVATE)
        if not files.model_description_file.exists():
            ModelDescription.of(self.config, self.task.dataset).write(files)
        if extra:
            write_atomically(files.client_extra_file(number), save_tensors(extra), PRIVATE)

    def _load_buffers(self, client: Client, instruction: Instruction) -> None:
        """Start from the received statistics, so that clients of one process share nothing."""
        buffers = instruction.arrays.get("buffers", self.initial_buffers)
        client.model.load(self.initial, buffers)


class Stopwatch:
    """Seconds, and CPU seconds where that says something; starts after its first pause."""

    def __init__(self, device: torch.device) -> None:
        self._clocks = {"seconds": time.perf_counter}
        if device.type == "cpu":  # with a GPU, a thread waits whoever else computes
            self._clocks["cpu-seconds"] = time.thread_time
        self._passed = dict.fromkeys(self._clocks, 0.0)
        self._since: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Return what has passed, without the pauses."""
        for name, since in self._since.items():
            now = self._clocks[name]()
            self._passed[name] += now - since
            self._since[name] = now
        return dict(self._passed)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what happens meanwhile."""
        self.read()
        try:
            yield
        finally:
            self._since = {name: clock() for name, clock in self._clocks.items()}


@dataclass(frozen=True)
class Job:
    """One client of a cohort: what it is asked, who computes it and where its files are."""

    worker: Worker
    files: RunFolder
    client: Client
    instruction: Instruction

    @property
    def received_bytes(self) -> int:
        """Memory of the vectors it trains with."""
        arrays = self.instruction.arrays
        return sum(arrays[name].nbytes for name in self.client.receives if name in arrays)


def pick_device(name: str) -> str:
    """Resolve ``auto``; refuse a GPU that is not there."""
    if name == "cuda" and best_device() != "cuda":
        raise UserError(
            "invalid value 'cuda' for device: PyTorch sees no GPU here. Use device=auto."
        )
    return best_device() if name == "auto" else name
