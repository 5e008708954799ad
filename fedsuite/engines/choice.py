"""The engine of a run that names none: the short run's in this process, the long run's in parallel.

The model is bit-identical on every engine, so that the choice is a matter of time alone. A run in
this process starts at once; Ray takes some ten seconds to start, and then uses all cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fedsuite.config import RunConfig
from fedsuite.core.flat_model import best_device
from fedsuite.core.threads import threads
from fedsuite.engines.table import LONG_RUNS, SHORT_RUNS
from fedsuite.terminal.format import duration
from tasks.split import Split
from tasks.task import Task

LIMIT_SECONDS = 30.0
TIMED_SECONDS = 0.05
TIMED_CALLS = 20


@dataclass(frozen=True)
class Cost:
    """What one sample takes, in seconds of one core: to train on it, to score it."""

    train: float
    score: float


def choose_engine(config: RunConfig, task: Task, module: nn.Module) -> tuple[str, str]:
    """Return an engine for a run, and in a line why."""
    if config.device != "cpu" and best_device() == "cuda":
        return LONG_RUNS, f"engine {LONG_RUNS}: there is a GPU"
    seconds = estimate_seconds(config, task.split, measure_cost(module, task, config.batch_size))
    about = f"about {duration(seconds)} of training on one core"
    if seconds < LIMIT_SECONDS:
        return SHORT_RUNS, f"engine {SHORT_RUNS}: {about} (--engine {LONG_RUNS} uses all cores)"
    return LONG_RUNS, f"engine {LONG_RUNS}: {about} (--engine {SHORT_RUNS} uses this process)"


def estimate_seconds(config: RunConfig, split: Split, cost: Cost) -> float:
    """Return about how long one core takes to train and score in all rounds of a run.

    In each round the sampled clients, of average size, train on their samples once per local epoch
    (or on ``local-steps`` batches); the server scores the test samples, and clients their own if
    they are asked to. A step costs what it costs FedAvg: an algorithm that takes several gradients
    per step takes as many times longer.
    """
    sampled = max(round(config.fraction_train * config.num_clients), config.min_train_clients)
    samples = float(np.mean([len(rows) for rows in split.train])) * config.local_epochs
    if config.local_steps:
        samples = config.local_steps * config.batch_size
    test = min(config.eval_rows or len(split.test), len(split.test))
    if config.personal_eval == "on":
        test += sum(len(rows) for rows in split.own_test)
    per_round = sampled * samples * cost.train + test * cost.score / config.eval_every
    return config.num_rounds * per_round


def measure_cost(module: nn.Module, task: Task, batch_size: int) -> Cost:
    """Time a model on a batch of training samples, by CPU time, so that others' load is no matter.

    The model is in evaluation mode: statistics stay as they are, and no random number is drawn.
    """
    x, y = task.rows(np.concatenate(task.split.train)[:batch_size])

    def train() -> None:
        F.cross_entropy(module(x), y).backward()

    def score() -> None:
        with torch.inference_mode():
            module(x)

    module.eval()
    with threads(1):
        return Cost(_seconds(train) / len(y), _seconds(score) / len(y))


def _seconds(work: Callable[[], object]) -> float:
    """Return the mean CPU time of a few calls; the first alone only if it was a long one."""
    times = [_time(work)]
    while sum(times) < TIMED_SECONDS and len(times) < TIMED_CALLS:
        times.append(_time(work))
    return float(np.mean(times[1:] or times))


def _time(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started
