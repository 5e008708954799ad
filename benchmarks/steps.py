"""What one local training step of each registered algorithm costs, beside FedAvg's."""

from __future__ import annotations

import dataclasses
import logging
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from flwr.app import Message, MessageType, RecordDict

from benchmarks.report import StepCost, quartiles
from benchmarks.workloads import Workload
from fedsuite import registry
from fedsuite.config import RunConfig, parse
from fedsuite.core.messages import Instruction, read_instructions
from fedsuite.core.threads import threads
from fedsuite.core.vector_files import VectorFiles
from fedsuite.engines.inline import InlineGrid
from fedsuite.nodes.worker import Worker
from fedsuite.records.folder import RunFolder
from fedsuite.training.loop import run
from tasks.task import open_task

REFERENCE = "fedavg"
CLIENTS = 4
ROUNDS = 3
FEWEST_PAIRS = 3


class ListeningGrid(InlineGrid):
    """An inline grid that keeps the instructions of the last training message it delivered."""

    heard: dict[int, Instruction]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Handle messages and return their replies."""
        batch = list(messages)
        for message in batch:
            if message.metadata.message_type == MessageType.TRAIN:
                self.heard = _copied(message.content)
        return super().send_and_receive(batch, timeout=timeout)


class Bench:
    """One algorithm's client, ready to train the same round again and again.

    The round is the third of a real run, so that what an algorithm computes only after the first
    ones (corrections, coefficients, client state) is there when it is timed.
    """

    def __init__(self, config: RunConfig) -> None:
        grid = ListeningGrid(1)
        self.folder = RunFolder(run(config, grid, engine="inline")).client_states
        self.instructions = grid.heard
        self.worker = Worker(config, open_task(config.task))

    def seconds_per_step(self) -> float:
        """Train the round's first client once; CPU time, so that a busy machine counts less."""
        number, instruction = next(iter(self.instructions.items()))
        with threads(self.worker.config.client_threads):
            client = self.worker.client(number, instruction, self.folder)
            client.inspect = lambda *_: {}  # type: ignore[method-assign]  # not part of training
            instruction = _with_zeros(instruction, client.receives, self.worker.model.size)
            started = time.process_time()
            result = self.worker.fit(client, instruction)
            seconds = time.process_time() - started
        return seconds / result.metrics["steps"]


def step_costs(
    workload: Workload,
    data_root: Path,
    folder: Path,
    steps: int,
    seconds: float,
    names: Iterable[str] | None = None,
) -> list[StepCost]:
    """Time each algorithm against FedAvg, one right after the other, again and again.

    ``names`` are by default all that are registered.
    """
    chosen = {REFERENCE, *(registry.ALGORITHMS if names is None else names)}
    settings = {
        name: _settings(name, workload, data_root, folder, steps)
        for name in sorted(chosen, key=lambda n: (n != REFERENCE, n))
    }
    benches, failed = _prepare(settings)
    reference = benches[REFERENCE]
    costs = []
    for name, bench in benches.items():
        reference.seconds_per_step(), bench.seconds_per_step()
        pairs: list[tuple[float, float]] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(pairs) < FEWEST_PAIRS:
            order = (reference, bench) if len(pairs) % 2 == 0 else (bench, reference)
            taken = {one: one.seconds_per_step() for one in order}
            pairs.append((taken[bench], taken[reference]))
        costs.append(_cost(name, pairs))
    return [*costs, *failed]


def _prepare(settings: Mapping[str, dict[str, str]]) -> tuple[dict[str, Bench], list[StepCost]]:
    benches, failed = {}, []
    with _errors_only():
        for name, given in settings.items():
            try:
                benches[name] = Bench(parse(given))
            except Exception as error:  # one that cannot be timed does not hide the others
                said = f"{type(error).__name__}: {error}".split("\n")[0]
                failed.append(StepCost(name, error=said))
    return benches, failed


@contextmanager
def _errors_only() -> Iterator[None]:
    logger = logging.getLogger("fedsuite")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _settings(
    algo: str, workload: Workload, data_root: Path, folder: Path, steps: int
) -> dict[str, str]:
    """Give all algorithms the same rows, also those that keep some for a test or a probe."""
    same = {
        "algo": algo,
        "num-clients": str(CLIENTS),
        "local-steps": str(steps),
        "client-test-fraction": "0.25",
        "probe-per-class": "10",
        "personal-eval": "off",
        "eval-every": str(ROUNDS),
        "results-dir": str(folder),
        "run-name": algo,
    }
    return workload.settings(data_root, ROUNDS) | same


def _copied(content: RecordDict) -> dict[int, Instruction]:
    """Return instructions with copies of their vectors, whose files end with the run."""
    files = VectorFiles.of(content.config_records["config"])
    assert files is not None, "an inline node shares the files of the run"
    found = read_instructions(content, files.resolve)
    return {
        client: dataclasses.replace(one, arrays={n: v.copy() for n, v in one.arrays.items()})
        for client, one in found.items()
    }


def _with_zeros(instruction: Instruction, receives: tuple[str, ...], size: int) -> Instruction:
    """Fill in vectors the server has not sent."""
    zeros = np.zeros(size, dtype=np.float32)
    missing = {name: zeros for name in receives if name not in instruction.arrays}
    return dataclasses.replace(instruction, arrays=instruction.arrays | missing)


def _cost(name: str, pairs: list[tuple[float, float]]) -> StepCost:
    ratios = [own / reference for own, reference in pairs]
    seconds = statistics.median(own for own, _ in pairs)
    return StepCost(name, seconds, statistics.median(ratios), quartiles(ratios))
