"""Clients that train together: each as if it were alone, whoever else is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from algorithms import FEW_EPOCHS, ON_ENGINES, OWN_CLIENTS
from federations import DeployedGrid

from clients.base import Client
from clients.fedavg import FedAvgClient
from clients.freeloader import freeloading
from fedsuite.config import parse
from fedsuite.core import stacked_model
from fedsuite.core.files import read_lines
from fedsuite.core.messages import Instruction, Result
from fedsuite.core.threads import threads
from fedsuite.engines.inline import InlineGrid
from fedsuite.nodes import worker as workers
from fedsuite.nodes.worker import Job, Worker
from fedsuite.records.folder import RunFolder
from tasks.task import open_task

Experiment = Callable[..., Path]
UNEQUAL = {"dirichlet_alpha": 0.3, "local_epochs": 2, "batch_size": 16, "freeloaders": "1"}
UNEQUAL |= {"attack": "label-flip", "attackers": "0,"}


def outcome(folder: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """A run's models, the global one or the clients', and what is known of clients but times."""
    files = [*folder.glob("model.safetensors"), *(folder / "models").glob("*")]
    rows = read_lines(folder / "clients.jsonl")
    known = [{name: v for name, v in row.items() if "seconds" not in name} for row in rows]
    assert files and any(row["phase"] == "train" for row in known)
    return {path.name: path.read_bytes() for path in files}, known


def check_sizes(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, algo: str, sizes: Sequence[int]
) -> None:
    found, settings = [], UNEQUAL | FEW_EPOCHS.get(algo, {})
    for size in sizes:
        monkeypatch.setattr(stacked_model, "MOST_ROWS", size)
        found.append(outcome(experiment(algo, num_clients=max(sizes), **settings)))
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize("algo", ["fedavg", "stem"])
def test_the_size_of_a_stack_does_not_show(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    check_sizes(experiment, monkeypatch, algo, (1, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize("algo", OWN_CLIENTS)
def test_stacks_of_1_4_and_20_give_the_same_bits(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    check_sizes(experiment, monkeypatch, algo, (1, 4, 20))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ON_ENGINES)
def test_one_two_or_three_nodes_give_the_same_bits(experiment: Experiment, algo: str) -> None:
    settings = UNEQUAL | FEW_EPOCHS.get(algo, {})
    found = [
        outcome(experiment(algo, grid=InlineGrid(nodes), num_clients=7, **settings))
        for nodes in (1, 2, 3)
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_deployed_clients_are_alone_and_give_the_same_bits(
    experiment: Experiment, tmp_path: Path, model: str
) -> None:
    nodes = [
        {"partition_id": number, "num_partitions": 3, "state_dir": str(tmp_path / f"node{number}")}
        for number in range(3)
    ]
    how = {"model": model, "num_clients": 3, "batch_size": 32}
    together = experiment("taco", **how)
    apart = experiment("taco", grid=DeployedGrid(*nodes), **how)
    files = [folder / "model.safetensors" for folder in (together, apart)]
    assert files[0].read_bytes() == files[1].read_bytes()


# One stack, without a server


def make_worker(**settings: Any) -> Worker:
    """A worker with six clients of unequal sizes; keys are written with underscores."""
    small = {"model": "mlp", "num_clients": 6, "batch_size": 16, "dirichlet_alpha": 0.3}
    given = {name.replace("_", "-"): value for name, value in (small | settings).items()}
    config = parse({"algo": "fedavg"} | given)
    return Worker(config, open_task(config.task))


def fit(
    worker: Worker, folder: Path, numbers: Sequence[int], cls: type[Client] = FedAvgClient
) -> dict[int, Result | Exception]:
    """Train some clients as one stack."""
    worker.client_class = cls
    config = {"round": 1, "lr": 0.1, "checkpoint-round": 0}
    instruction = Instruction({"model": worker.initial}, config, {})
    jobs = [
        Job(worker, RunFolder(folder), worker.client(n, instruction, folder, row), instruction)
        for row, n in enumerate(numbers)
    ]
    with threads(1):
        return dict(zip(numbers, worker.fit_together(jobs), strict=True))


def update(found: Result | Exception) -> bytes:
    assert isinstance(found, Result)
    return found.arrays["update"].tobytes()


class Failing(FedAvgClient):
    """Client 2 fails at its third step."""

    left = 3

    def correct_gradient(self) -> None:
        self.left -= 1
        if self.context.client == 2 and not self.left:
            raise RuntimeError("the third step")


def test_a_client_that_raises_midway_fails_alone(tmp_path: Path) -> None:
    worker = make_worker(local_steps=5)
    good = fit(worker, tmp_path, range(6))
    found = fit(worker, tmp_path, range(6), Failing)
    assert isinstance(found[2], RuntimeError) and str(found[2]) == "the third step"
    assert all(update(found[n]) == update(good[n]) for n in range(6) if n != 2)


def test_a_client_does_not_depend_on_who_else_is_in_its_stack(tmp_path: Path) -> None:
    worker = make_worker()
    everybody = fit(worker, tmp_path, range(6))
    for numbers in ([3], [5, 3], [0, 3, 1], [4, 2, 3, 0]):
        found = fit(worker, tmp_path, numbers)
        assert all(update(found[n]) == update(everybody[n]) for n in numbers)


def test_a_freeloader_is_in_the_stack_without_training(tmp_path: Path) -> None:
    worker = make_worker()
    worker.freeloaders = {1}
    found = fit(worker, tmp_path, range(3))
    honest = fit(make_worker(), tmp_path / "other", range(3))
    assert not np.frombuffer(update(found[1]), np.float32).any()
    assert all(update(found[n]) == update(honest[n]) for n in (0, 2))
    assert freeloading(FedAvgClient)(worker.client(0, INSTRUCTION, tmp_path).context).stackable


INSTRUCTION = Instruction({}, {"round": 1, "lr": 0.1, "checkpoint-round": 0}, {})


class Half(FedAvgClient):
    """Clients with an odd number cannot be stacked."""

    @property
    def stackable(self) -> bool:
        return self.context.client % 2 == 0


def test_a_cohort_may_be_stacked_in_part(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those by themselves train as a module alone does, close to the others but not bit-equal."""
    seen: list[list[int]] = []
    together = Worker.fit_together

    def listen(worker: Worker, jobs: list[Job]) -> Any:
        seen.append([job.client.context.client for job in jobs])
        return together(worker, jobs)

    monkeypatch.setattr(Worker, "fit_together", listen)
    whole = outcome(experiment("fedavg", num_clients=5, num_rounds=1))
    monkeypatch.setattr(FedAvgClient, "stackable", Half.stackable)
    part = outcome(experiment("fedavg", num_clients=5, num_rounds=1))
    assert [sorted(cohort) for cohort in seen] == [[0, 1, 2, 3, 4], [0, 2, 4]]
    losses = [[row["loss"] for row in rows if row["phase"] == "train"] for _, rows in (whole, part)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


class Drawing(FedAvgClient):
    """Draws noise that all clients of a stack would share."""

    def correct_gradient(self) -> None:
        self.model.grads.add_(torch.randn(self.model.size))


class DrawingAlone(Drawing):
    """The same, and says so."""

    @property
    def stackable(self) -> bool:
        return False


def test_drawing_from_the_global_generator_is_refused_in_a_stack(tmp_path: Path) -> None:
    worker = make_worker()
    found = fit(worker, tmp_path, [0, 1], Drawing)
    assert all("Drawing draws from PyTorch's global generator" in str(e) for e in found.values())
    worker.client_class = DrawingAlone
    client = worker.client(0, INSTRUCTION, tmp_path)
    assert not worker.may_stack(client)
    first, second = (
        worker.fit(client, Instruction({"model": worker.initial}, INSTRUCTION.config, {}))
        for _ in range(2)
    )
    assert update(first) == update(second)


def test_times_are_shared_by_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One second per reading; the watch is read as each of two clients starts, and at the end.

    Two seconds pass, for (2 + 1) + (4 + 1) parts: 2 and 4 steps, and one more for the rest.
    """
    worker = make_worker(num_clients=2, partition="iid", batch_size=16)
    parts = dataclasses.replace(worker.task.split, train=[np.arange(32), np.arange(64)])
    monkeypatch.setattr(worker.task, "split", parts)
    clock = iter(range(1000))
    fake = SimpleNamespace(perf_counter=lambda: float(next(clock)), thread_time=lambda: 0.0)
    monkeypatch.setattr(workers, "time", fake)
    found = fit(worker, tmp_path, range(2))
    seconds = [r.metrics["seconds"] for r in found.values() if isinstance(r, Result)]
    assert seconds == pytest.approx([2 * 3 / 8, 2 * 5 / 8])


def test_stacks_compute_on_one_thread_and_others_on_as_many_as_asked(tmp_path: Path) -> None:
    worker = make_worker(client_threads=3)
    assert worker.threads(worker.client(0, INSTRUCTION, tmp_path)) == 1
    worker.client_class = DrawingAlone
    assert worker.threads(worker.client(0, INSTRUCTION, tmp_path)) == 3


def test_a_stack_is_full_by_clients_or_by_what_they_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    instruction = Instruction({"model": worker.initial, "other": worker.initial}, {"round": 1}, {})
    config = INSTRUCTION.config
    client = worker.client(0, Instruction(instruction.arrays, config, {}), tmp_path)
    jobs = [Job(worker, RunFolder(tmp_path), client, instruction)] * 3
    assert jobs[0].received_bytes == worker.initial.nbytes
    assert not worker.is_full(jobs)
    monkeypatch.setattr(workers, "RECEIVED_BYTES", 3 * worker.initial.nbytes)
    assert worker.is_full(jobs) and not worker.is_full(jobs[:2])
    monkeypatch.undo()
    assert worker.stack is not None
    assert worker.is_full(jobs * (worker.stack.capacity // 3) + jobs[: worker.stack.capacity % 3])


def test_a_stack_gathers_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits have 8 x 8 float32: 256 bytes per row. Room for 10 rows of each of 64 clients."""
    assert make_worker().chunk_rows == min(4096, 64 * 2**20 // (64 * 256))
    monkeypatch.setattr(workers, "GATHERED_BYTES", 10 * 64 * 256)
    assert make_worker().chunk_rows == 10
    assert make_worker(model="lenet").chunk_rows == 640
