"""Baselines (a) and (b): FedAvg as one writes it by hand, without any framework.

Ordinary modules, ``torch.optim.SGD``, averaged state_dicts, tensors resident in memory; (a) in one
process with two threads, (b) with the clients assigned to two persistent worker processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gate import own_gate
from benchmarks.job import Job, RoundLog, Rows, as_input, open_job

State = dict[str, torch.Tensor]
Packed = dict[str, np.ndarray]
TrainAll = Callable[[State], list[State]]
EVAL_BATCH = 256
WORKERS = 2
THREADS = 2
CLEARLY = 0.9


def train_client(model: nn.Module, rows: Rows, job: Job) -> None:
    """Train in place: the local epochs, or exactly the local steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr)
    model.train()
    for x, y in batches(rows, job):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def batches(rows: Rows, job: Job) -> Iterator[Rows]:
    """Yield batches of reshuffled passes; each pass, or all steps' rows, gathered at once."""
    x, y = rows
    size = min(job.batch_size, len(y))
    if job.local_steps:
        wanted = job.local_steps * size
        passes = [torch.randperm(len(y)) for _ in range(-(-wanted // len(y)))]
        orders = [torch.cat(passes)[:wanted]]
    else:
        orders = [torch.randperm(len(y)) for _ in range(job.local_epochs)]
    for order in orders:
        yield from zip(as_input(x[order]).split(size), y[order].split(size), strict=True)


@torch.inference_mode()
def evaluate(model: nn.Module, rows: Rows) -> tuple[float, float]:
    """Return the share of rows the model gets right, and its mean loss."""
    model.eval()
    x, y = as_input(rows[0]), rows[1]
    correct, loss = 0, 0.0
    for a, b in zip(x.split(EVAL_BATCH), y.split(EVAL_BATCH), strict=True):
        logits = model(a)
        correct += int((logits.argmax(1) == b).sum())
        loss += F.cross_entropy(logits, b, reduction="sum").item()
    return correct / len(y), loss / len(y)


def evaluation_threads(model: nn.Module, rows: Rows) -> int:
    """Return how many threads evaluate best here: one, unless more are clearly quicker."""
    seconds = {}
    for count in (THREADS, 1):
        torch.set_num_threads(count)
        trials = []
        for _ in range(3):
            started = time.perf_counter()
            evaluate(model, rows)
            trials.append(time.perf_counter() - started)
        seconds[count] = min(trials)
    return THREADS if seconds[THREADS] < CLEARLY * seconds[1] else 1


def average(states: Sequence[State], sizes: Sequence[int]) -> State:
    """Return the mean of state_dicts, weighted by sample counts."""
    weights = torch.tensor(sizes, dtype=torch.float32) / sum(sizes)
    return {
        name: torch.tensordot(weights, torch.stack([state[name] for state in states]), dims=1)
        for name in states[0]
    }


def assign(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Give each client, largest first, to the worker with the least to do so far."""
    cohorts: list[list[int]] = [[] for _ in range(workers)]
    for client in sorted(range(len(sizes)), key=lambda c: -sizes[c]):
        min(cohorts, key=lambda clients: sum(sizes[c] for c in clients)).append(client)
    return cohorts


def loads(sizes: Sequence[int], job: Job) -> list[int]:
    """Return the local steps of each client: what it costs."""
    if job.local_steps:
        return [job.local_steps] * len(sizes)
    return [job.local_epochs * -(-size // job.batch_size) for size in sizes]


def train_cohort(model: nn.Module, state: State, cohort: Sequence[Rows], job: Job) -> list[State]:
    """Train clients one after the other, each from the same global state."""
    states = []
    for rows in cohort:
        model.load_state_dict(state)
        train_client(model, rows, job)
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    return states


@contextmanager
def one_process(folder: Path) -> Iterator[TrainAll]:
    """Give (a): every client in this process."""
    job, data = open_job(folder)
    model = job.build_model()
    cohort = [data.client(number) for number in range(len(data.parts))]
    yield lambda state: train_cohort(model, state, cohort, job)


@contextmanager
def two_processes(folder: Path) -> Iterator[TrainAll]:
    """Give (b): the clients assigned to worker processes that live as long as the run."""
    job, data = open_job(folder)
    sizes = [len(part) for part in data.parts]
    cohorts = assign(loads(sizes, job), WORKERS)
    spawn = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    for clients in cohorts:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=work, args=(folder, clients, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            pipe.recv()
        yield lambda state: ask(state, pipes, cohorts)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join()


def ask(state: State, pipes: Sequence[Connection], cohorts: Sequence[Sequence[int]]) -> list[State]:
    """Send the global state to all workers; return the clients' states in client order."""
    packed = pack(state)
    for pipe in pipes:
        pipe.send(packed)
    states: dict[int, State] = {}
    for pipe, clients in zip(pipes, cohorts, strict=True):
        states |= dict(zip(clients, map(unpack, pipe.recv()), strict=True))
    return [states[client] for client in sorted(states)]


def work(folder: Path, clients: Sequence[int], pipe: Connection) -> None:
    """Be a worker: train one's clients whenever a global state comes, until the pipe closes."""
    torch.set_num_threads(1)
    job, data = open_job(folder)
    torch.manual_seed(1 + min(clients, default=0))
    model = job.build_model()
    cohort = [data.client(number) for number in clients]
    pipe.send("ready")
    while True:
        try:
            state = unpack(pipe.recv())
        except EOFError:
            return
        pipe.send([pack(trained) for trained in train_cohort(model, state, cohort, job)])


def pack(state: State) -> Packed:
    """Turn tensors into arrays, which go through a pipe as they are and not as shared memory."""
    return {name: value.numpy() for name, value in state.items()}


def unpack(packed: Packed) -> State:
    """Turn received arrays back into tensors."""
    return {name: torch.from_numpy(value) for name, value in packed.items()}


def run_rounds(folder: Path, train_all: TrainAll, log: RoundLog) -> None:
    """Train, average and evaluate for all rounds."""
    job, data = open_job(folder)
    sizes = [len(part) for part in data.parts]
    model, test = job.build_model(), data.test()
    state: State = model.state_dict()
    threads = evaluation_threads(model, test)
    gate = own_gate()
    for number in range(1, job.rounds + 1):
        gate.wait(number)
        torch.set_num_threads(THREADS)
        started = time.perf_counter()
        state = average(train_all(state), sizes)
        model.load_state_dict(state)
        trained = time.perf_counter()
        torch.set_num_threads(threads)
        accuracy, loss = evaluate(model, test)
        ended = time.perf_counter()
        log.add(number, ended - started, accuracy, loss, evaluate_seconds=ended - trained)


VARIANTS = {"one-process": one_process, "two-processes": two_processes}


def run(variant: str, folder: Path, output: Path) -> None:
    """Run one of the two baselines and write its rounds."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    log = RoundLog(output)
    with VARIANTS[variant](folder) as train_all:
        run_rounds(folder, train_all, log)
    log.write()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    run(arguments.variant, arguments.folder, arguments.output)
