"""The ClientApp: works through a cohort, one algorithm's NumPyClient per client.

Data and model are opened once per process and kept; a client that fails is reported as such and
does not take its cohort with it.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.numpy import save as save_tensors

from clients.base import Client, ClientContext, Training
from clients.freeloader import freeloading
from clients.state import PRIVATE, ClientState
from fedsuite import registry
from fedsuite.config import RunConfig, from_json, params_of
from fedsuite.core import seeds
from fedsuite.core.files import read_document, write_atomically, write_problem
from fedsuite.core.flat_model import FlatModel, best_device
from fedsuite.core.messages import (
    Instruction,
    Result,
    clean_reason,
    read_instructions,
    write_results,
)
from fedsuite.core.protocol import SAVE_MODEL
from fedsuite.core.settings import UserError
from fedsuite.nodes.identity import describe_node, make_private, open_node_data, read_node_data
from fedsuite.nodes.privacy import local_privacy, read_privacy
from fedsuite.records.folder import RunFolder
from fedsuite.records.provenance import RUN_ID
from tasks.models import build_model
from tasks.task import Task, open_task

app = ClientApp(mods=[local_privacy])
log = logging.getLogger("fedsuite.client_app")


class Worker:
    """What a process keeps between messages of a run."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        self.config, self.task = config, task
        module = build_model(config.model, self.task.shape, seeds.integer(config.seed, "model"))
        self.model = FlatModel(module, pick_device(config.device))
        self.initial, self.initial_buffers = self.model.vector(), self.model.buffer_vector()
        self.client_class = registry.find(config.algo).client
        self.params = params_of(config)
        self.freeloaders = set(config.freeloader_ids)
        self.training = Training(
            config.local_epochs,
            config.local_steps,
            config.batch_size,
            config.optimizer,
            config.momentum,
            config.weight_decay,
        )

    def client(self, number: int, instruction: Instruction, folder: Path) -> Client:
        """Build one client for one round, with its settings."""
        cls = self.client_class
        if number in self.freeloaders:
            cls = freeloading(cls, self.config.freeloader_noise)
        config = instruction.config
        server_round = int(config["round"])
        known = int(config.get("state-round", 0))
        state = ClientState(folder, number, server_round, int(config["checkpoint-round"]), known)
        context = ClientContext(
            client=number,
            round=server_round,
            seed=self.config.seed,
            task=self.task,
            model=self.model,
            initial=self.initial,
            initial_buffers=self.initial_buffers,
            state=state,
            training=self.training,
        )
        return cls(context, dataclasses.replace(self.params, **instruction.params))

    def fit(self, client: Client, instruction: Instruction) -> Result:
        """Train one client and measure it."""
        number = client.context.client
        self.model.seed(seeds.integer(self.config.seed, "torch", client.context.round, number))
        self._load_buffers(instruction)
        parameters = [instruction.arrays[name] for name in client.receives]
        seen = client.inspect(client.receive(client.receives, parameters, instruction.config))
        started, started_cpu = time.perf_counter(), time.thread_time()
        arrays, count, metrics = client.fit(parameters, instruction.config)
        seconds = time.perf_counter() - started
        metrics = {**seen, **metrics, "num-examples": count, "seconds": seconds}
        if self.model.device.type == "cpu":  # with a GPU, a thread waits whoever else computes
            metrics["cpu-seconds"] = time.thread_time() - started_cpu
        named = dict(zip(client.outgoing(), arrays, strict=True))
        if "buffers" in instruction.arrays:
            named["buffers"] = self.model.buffer_vector()
        return Result(number, named, metrics)

    def evaluate(self, client: Client, instruction: Instruction) -> Result:
        """Score one client."""
        self._load_buffers(instruction)
        parameters = [instruction.arrays[name] for name in client.scores_with]
        loss, count, metrics = client.evaluate(parameters, instruction.config)
        return Result(client.context.client, {}, metrics | {"num-examples": count, "loss": loss})

    def save(self, client: Client, files: RunFolder) -> None:
        """Write a client's model as it was scored last, and what it predicts with beside it."""
        number = client.context.client
        files.client_models.mkdir(parents=True, exist_ok=True)
        tensors, extra = self.model.named_tensors(), client.beside_model()
        write_atomically(files.client_model_file(number), save_tensors(tensors), PRIVATE)
        if extra:
            write_atomically(files.client_extra_file(number), save_tensors(extra), PRIVATE)

    def _load_buffers(self, instruction: Instruction) -> None:
        """Start from the received statistics, so that clients of one process share nothing."""
        self.model.load(self.initial, instruction.arrays.get("buffers", self.initial_buffers))


@lru_cache(maxsize=2)
def worker_for(run: str) -> Worker:
    """Return this process's worker for a simulated run, by the run's settings as JSON."""
    config = from_json(run)
    return Worker(config, open_task(config.task))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a cohort."""
    return _answer(message, context, "fit")


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score a cohort."""
    return _answer(message, context, "evaluate")


@app.query()
def query(message: Message, context: Context) -> Message:
    """Describe this node; open the run's data, so that a problem shows before training."""
    config = dict(message.content.config_records["config"])
    if "refusal" in config:
        log.error("The server says: %s.", config["refusal"])
        answer: dict[str, Any] = {}
    elif not _is_simulated(context, config):
        answer = _describe_node(context, str(config["run"]))
    else:
        with threads(1):
            worker_for(str(config["run"]))
        answer = {
            "partition-id": int(context.node_config.get("partition-id", 0)),
            "num-partitions": int(context.node_config.get("num-partitions", 1)),
            "shares-disk": _sees_run(Path(str(config["run-dir"])), str(config["run-id"])),
        }
    return Message(RecordDict({"node": ConfigRecord(answer)}), reply_to=message)


def _describe_node(context: Context, run: str) -> dict[str, Any]:
    """Describe a deployed node, or return in a sentence why it cannot take part."""
    try:
        read_privacy(context.node_config)
        with threads(1):
            return describe_node(read_node_data(context.node_config), from_json(run))
    except UserError as error:
        log.error("This node cannot take part: %s", error)
        return {"refusal": str(error)}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads; afterwards, with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pick_device(name: str) -> str:
    """Resolve ``auto``; refuse a GPU that is not there."""
    if name == "cuda" and best_device() != "cuda":
        raise UserError(
            "invalid value 'cuda' for device: PyTorch sees no GPU here. Use device=auto."
        )
    return best_device() if name == "auto" else name


def _answer(message: Message, context: Context, method: str) -> Message:
    results = []
    for number, instruction in read_instructions(message.content).items():
        is_deployed, state = not _is_simulated(context, instruction.config), None
        try:
            worker, files = _open_worker(context, instruction.config, number)
            with threads(worker.config.client_threads):
                client = worker.client(number, instruction, files.client_states)
                state = client.context.state
                result = getattr(worker, method)(client, instruction)
                if SAVE_MODEL in instruction.config:
                    worker.save(client, files)
        except Exception as error:
            said = str(error) if isinstance(error, UserError) else write_problem(error)
            reason = said or traceback.format_exc()
            if is_deployed:
                log.error("client %d: %s", number, reason)
            result = Result(number, error=clean_reason(reason))
        if is_deployed and state:
            result = dataclasses.replace(result, state_round=state.newest)
        results.append(result)
    return Message(write_results(results), reply_to=message)


def _is_simulated(context: Context, header: Mapping[str, Any]) -> bool:
    """Return whether this node is a simulation's; one with data or state of its own never is."""
    return "run-dir" in header and not {"data-path", "state-dir"} & set(context.node_config)


def _open_worker(
    context: Context, header: Mapping[str, Any], number: int
) -> tuple[Worker, RunFolder]:
    """Return the worker, and where clients' files are: in a simulation, the run's own folder."""
    if _is_simulated(context, header):
        return worker_for(str(header["run"])), RunFolder(Path(str(header["run-dir"])))
    node, config = read_node_data(context.node_config), from_json(str(header["run"]))
    run_id = str(header["run-id"])
    if not run_id.isalnum():
        raise UserError(f"invalid value '{run_id}' for run-id: it has letters and digits only.")
    state = node.state_dir / run_id
    for folder in (node.state_dir, state):
        make_private(folder)
    return Worker(config, open_node_data(node, config, header, number)), RunFolder(state)


def _sees_run(folder: Path, run_id: str) -> bool:
    """Return whether this node shares the run's folder with the server."""
    try:
        return bool(read_document(RunFolder(folder).config_file).get(RUN_ID) == run_id)
    except (OSError, UserError):
        return False
