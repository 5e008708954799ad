"""Divide a few labels as a run would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.partitions import PartitionOptions
from tasks.split import partition

TEN_CLASSES = np.tile(np.arange(10), 60)


def divide(
    scheme: str,
    labels: Sequence[int] | np.ndarray,
    clients: int,
    seed: int = 0,
    owners: np.ndarray | None = None,
    num_classes: int = 0,
    **options: Any,
) -> list[np.ndarray]:
    """Return each client's rows; ``options`` are those of :class:`PartitionOptions`."""
    return partition(
        scheme, np.asarray(labels), clients, PartitionOptions(**options), seed, owners, num_classes
    )
