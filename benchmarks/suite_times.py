"""How long each suite takes on one core, estimated from measured seconds per training step.

``python -m benchmarks.suite_times`` times one step of every model, data shape and batch size that
the suites use, on random numbers, and prints a table. An estimate: rows are counted from the
datasets' sizes, scoring a row is taken as a third of training on it, and a method's own work counts
only where it is a whole number of gradients (``GRADIENTS``).
"""

from __future__ import annotations

import statistics
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from benchmarks.report import table
from clients.optim import SGD, Adam
from fedsuite.config import RunConfig, parse
from fedsuite.core.flat_model import FlatModel
from fedsuite.registry import ALGORITHMS
from fedsuite.suites.definition import SCALES, Plan, read_suite
from tasks.models import build_model
from tasks.shapes import DataShape

SUITES = Path(__file__).parents[1] / "sim_configs" / "suites"
STEPS = 5
SCORING = 1 / 3
START_SECONDS = 5.0
GRADIENTS = {"stem": 2.0, "pfedme": 5.0, "fedadw": 1.8}


def _images(channels: int, side: int, classes: int) -> DataShape:
    return DataShape("image", (channels, side, side), classes)


# Rows for training and for the test, and what a row looks like.
DATA: dict[str, tuple[int, int, DataShape]] = {
    "digits": (1437, 360, _images(1, 8, 10)),
    "mnist": (60_000, 10_000, _images(1, 28, 10)),
    "fashion-mnist": (60_000, 10_000, _images(1, 28, 10)),
    "emnist": (20_000, 4_000, _images(1, 28, 62)),
    "femnist-digits": (341_873, 40_832, _images(1, 28, 10)),
    "svhn": (73_257, 26_032, _images(3, 32, 10)),
    "cifar10": (50_000, 10_000, _images(3, 32, 10)),
    "cifar100": (50_000, 10_000, _images(3, 32, 100)),
    "stl10": (5_000, 8_000, _images(3, 96, 10)),
    "tiny-imagenet": (100_000, 10_000, _images(3, 64, 200)),
    "adult": (32_561, 16_281, DataShape("tabular", (105,), 2)),
    "ag-news": (120_000, 7_600, DataShape("tokens", (200,), 4, 30_000)),
    "shakespeare": (3_318_474, 765_240, DataShape("chars", (80,), 80, 80)),
}


class Step(NamedTuple):
    """What decides how long a training step takes."""

    model: str
    dataset: str
    batch: int
    optimizer: str


def step_of(config: RunConfig) -> Step:
    """Return the kind of step a run makes."""
    return Step(config.model, config.dataset, config.batch_size, config.optimizer)


@cache
def step_seconds(step: Step) -> float:
    """Time a kind of step once."""
    return time_step(step)


def time_step(step: Step) -> float:
    """Return the CPU seconds of one training step, the median of a few."""
    model, dataset, batch, optimizer = step
    shape = DATA[dataset][2]
    net = FlatModel(build_model(model, shape, seed=1))
    size = (batch, *shape.input_shape)
    numbers = shape.kind in ("image", "tabular")
    x = torch.randn(size) if numbers else torch.randint(1, shape.vocabulary, size)
    y = torch.randint(shape.num_classes, (batch,))
    mover = (Adam if optimizer == "adam" else SGD)(net.weights, net.grads)
    seconds = []
    for _ in range(STEPS):
        started = time.process_time()
        net.backward(cross_entropy(net.module(x), y))
        mover.step(lr=1e-3)
        seconds.append(time.process_time() - started)
    return statistics.median(seconds[1:])


def run_seconds(config: RunConfig, algo: str) -> float:
    """Estimate one run on one core."""
    step = step_seconds(step_of(config))
    train, test, _ = DATA[config.dataset]
    if config.pool_train_test:
        train, test = train + test, 0
    if config.partition == "shards" and config.num_shards:
        train = train * config.num_clients * config.shards_per_client // config.num_shards
    if config.partition == "natural" and config.natural_rows:
        train = config.natural_rows
    own_test = train * config.client_test_fraction
    clients = config.num_clients * config.fraction_train
    rows = (train - own_test) / config.num_clients
    steps = config.local_steps or config.local_epochs * rows / config.batch_size
    scored = (min(config.eval_rows, test) if config.eval_rows else test) + own_test
    training = clients * steps * step * GRADIENTS.get(algo, 1.0)
    scoring = scored / config.batch_size * step * SCORING / config.eval_every
    return START_SECONDS + config.num_rounds * (training + scoring)


def resolved(plan: Plan) -> RunConfig:
    """Return a run's settings; a method that is not here counts as FedAvg."""
    settings: dict[str, Any] = dict(plan.settings)
    if settings["algo"] not in ALGORITHMS:
        settings = {k: v for k, v in settings.items() if "." not in k} | {"algo": "fedavg"}
    return parse(settings, foreign="ignore")


def duration(seconds: float) -> str:
    """Write an estimate as roughly as it is known."""
    if seconds < 90 * 60:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.0f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def main() -> int:
    """Print how long suites take, and the steps that were timed for that."""
    torch.set_num_threads(1)
    rows, steps = [], set()
    for file in sorted(SUITES.glob("*.toml")):
        row = [file.stem]
        for scale in SCALES:
            plans = read_suite(file, scale).plans
            configs = [resolved(plan) for plan in plans]
            seconds = [
                run_seconds(config, str(plan.settings["algo"]))
                for plan, config in zip(plans, configs, strict=True)
            ]
            steps |= {step_of(config) for config in configs}
            row += [str(len(plans)), duration(sum(seconds))]
        rows.append(row)
        print(file.stem, file=sys.stderr, flush=True)
    print(table(("suite", "runs", "one core", "small: runs", "one core"), rows), end="\n\n")
    timed = [[*map(str, step), f"{1000 * step_seconds(step):.1f} ms"] for step in sorted(steps)]
    print(table(("model", "data", "batch", "optimiser", "a step"), timed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
