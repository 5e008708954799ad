"""The workloads, where their data comes from, and their export for the baselines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.job import Job, save_arrays
from benchmarks.report import LABELS, Targets
from benchmarks.synthetic import write_split, write_synthetic
from fedsuite.config import RunConfig, parse
from fedsuite.core import seeds
from tasks.datasets import DATASETS
from tasks.task import open_task


@dataclass(frozen=True)
class Workload:
    """One thing to train, and what is asked of the suite there."""

    name: str
    title: str
    dataset: str
    model: str
    partition: str
    num_clients: int
    local_steps: int
    train_rows: int
    test_rows: int
    targets: Targets
    batch_size: int = 64
    lr: float = 0.01
    variants: str = "".join(LABELS)
    rounds: int = 0  # 0: as many as asked for
    eval_rows: int = 0  # 0: all
    has_step_costs: bool = True
    flower_gigabytes: float = 0.0  # memory that (c) needs
    by_turns: bool = True  # or one variant after the other, each with the machine to itself

    def settings(self, data_root: Path, rounds: int) -> dict[str, str]:
        """Return the suite's settings for this workload."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "partition": self.partition,
            "dirichlet-alpha": "0.5",
            "num-clients": str(self.num_clients),
            "num-rounds": str(rounds),
            "local-epochs": "1",
            "local-steps": str(self.local_steps),
            "batch-size": str(self.batch_size),
            "optimizer": "sgd",
            "lr": str(self.lr),
            "data-root": str(data_root),
            "device": "cpu",
            "eval-rows": str(self.eval_rows),
        }

    def config(self, data_root: Path, rounds: int) -> RunConfig:
        """Return the same settings as the suite reads them."""
        return parse({"algo": "fedavg", **self.settings(data_root, rounds)})

    @property
    def quick(self) -> Workload:
        """The same with fewer rows and steps, to see that everything runs."""
        return dataclasses.replace(
            self,
            train_rows=self.train_rows // 5,
            test_rows=self.test_rows // 5,
            local_steps=-(-self.local_steps // 5),
            num_clients=min(self.num_clients, 50),
            rounds=0,
        )


W1 = Workload(
    name="W1",
    title="Fashion-MNIST, Dirichlet 0.5, LeNet, one local epoch",
    dataset="fashion-mnist",
    model="lenet",
    partition="dirichlet",
    num_clients=20,
    local_steps=0,
    train_rows=60_000,
    test_rows=10_000,
    targets=Targets(of_plain_loop=0.95, ahead_of_flower=1.4),
)
W2 = Workload(
    name="W2",
    title="Adult, iid, MLP 32-16-8",
    dataset="adult",
    model="mlp",
    partition="iid",
    num_clients=100,
    local_steps=100,
    train_rows=32_561,
    test_rows=16_281,
    targets=Targets(of_plain_loop=0.30, ahead_of_flower=6.0),
)
W3 = Workload(
    name="W3",
    title="CIFAR-10, iid, ResNet-18, 100 clients, one local step of 2 images",
    dataset="cifar10",
    model="resnet18",
    partition="iid",
    num_clients=100,
    local_steps=1,
    train_rows=50_000,
    test_rows=10_000,
    targets=Targets(replies=100, machine_gigabytes=6.0, beside_training=3.0),
    batch_size=2,
    variants="cd",
    rounds=5,
    eval_rows=16,
    has_step_costs=False,
    flower_gigabytes=12.0,
    by_turns=False,
)
W4 = dataclasses.replace(
    W2,
    name="W4",
    title="Adult, iid, MLP 32-16-8, 1,000 clients, ten local steps",
    num_clients=1000,
    local_steps=10,
    targets=Targets(replies=1000, machine_gigabytes=3.0),
    variants="d",
    rounds=5,
    has_step_costs=False,
)
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4)}
QUICK = ("W1", "W2")
# One step of both models at growing sizes, for the model of a round's cost.
COST_RUNS = [
    *(
        dataclasses.replace(W4, num_clients=n, local_steps=1, batch_size=10, eval_rows=16)
        for n in (100, 1000, 3000)
    ),
    *(dataclasses.replace(W3, num_clients=n, rounds=4) for n in (10, 30, 100)),
]


def provide(workload: Workload, mirror: Path, root: Path, shorten: bool) -> tuple[Path, str]:
    """Return a data-root that has the workload's dataset, and a word on where it is from."""
    folder = DATASETS[workload.dataset].folder
    real = sorted((mirror / folder).glob("train-*.parquet"))
    if real and not shorten:
        return mirror, f"real data ({folder})"
    if real:
        for split, rows in (("train", workload.train_rows), ("test", workload.test_rows)):
            _copy_some(mirror / folder, root / folder, split, rows)
        return root, f"a random part of the real data ({folder})"
    write_synthetic(workload.dataset, root, workload.train_rows, workload.test_rows)
    return root, f"synthetic data of the same shape (no {folder} in {mirror})"


def export(workload: Workload, data_root: Path, rounds: int, folder: Path) -> str:
    """Write the suite's own rows and split as plain arrays; return a word on their shape."""
    config = workload.config(data_root, rounds)
    task = open_task(config.task)
    test = task.split.test[: workload.eval_rows or None]
    save_arrays(folder, task.dataset.x, task.dataset.y, task.split.train, test)
    Job(
        model=config.model,
        model_seed=seeds.integer(config.seed, "model"),
        shape=task.shape,
        rounds=rounds,
        batch_size=config.batch_size,
        local_epochs=config.local_epochs,
        local_steps=config.local_steps,
        lr=config.lr,
    ).save(folder)
    sizes = [len(part) for part in task.split.train]
    return (
        f"{len(sizes)} clients of {min(sizes)} to {max(sizes)} rows, "
        f"{' x '.join(map(str, task.shape.input_shape))} inputs, {task.shape.num_classes} classes, "
        f"{len(test):,} test rows"
    )


def _copy_some(source: Path, target: Path, split: str, rows: int) -> None:
    table = pq.read_table(sorted(source.glob(f"{split}-*.parquet")))
    chosen = np.random.default_rng(0).permutation(table.num_rows)[:rows]
    write_split(target, split, table.take(np.sort(chosen)))
