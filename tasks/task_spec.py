"""What identifies a task."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.datasets import Columns
from tasks.partitions import PartitionOptions


@dataclass(frozen=True)
class TaskSpec:
    """Everything that decides who has which rows."""

    dataset: str
    data_root: str
    partition: str
    options: PartitionOptions
    num_clients: int
    seed: int
    client_test_fraction: float = 0.0
    pool_train_test: bool = False
    probe_per_class: int = 0
    columns: Columns = field(default_factory=Columns)
