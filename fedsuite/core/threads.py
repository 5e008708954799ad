"""How many threads PyTorch computes with, and work divided among threads of one each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads; afterwards, with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_in_threads(function: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """Apply a function to items; return what it gives, in their order.

    Each item is computed by one thread, and as many items at a time as PyTorch has threads. So
    small tensors occupy all cores, and the bits do not depend on how many there are.
    """
    count = torch.get_num_threads()
    if count == 1:
        return [function(item) for item in items]
    with threads(1), ThreadPoolExecutor(count, "batch", torch.set_num_threads, (1,)) as pool:
        return list(pool.map(function, items))
