"""Clients as they are outside a laboratory: some drop out of a round, some are slow.

Who does, and how slow, is drawn from the run's seed, the round and the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fedsuite.core import seeds

T = TypeVar("T")


def drops_out(share: float, seed: int, server_round: int, client: int) -> bool:
    """Return whether a client that was sampled does not answer in a round."""
    if not share:
        return False
    return bool(seeds.generator(seed, "dropout", server_round, client).random() < share)


def straggler_pace(stragglers: float, least: float, draw: np.random.Generator) -> float:
    """Return which share of its steps a client trains: 1, or for a straggler ``least`` to 1."""
    if draw.random() >= stragglers:
        return 1.0
    return float(draw.uniform(least, 1.0))


def shorten(epochs: Sequence[Sequence[T]], pace: float) -> list[list[T]]:
    """Return the first ``pace`` of all steps, at least one; epochs without any stay, empty.

    >>> shorten([[1, 2, 3], [4, 5, 6]], 0.6)  # 3.6 of 6 steps
    [[1, 2, 3], [4]]
    """
    left = max(int(pace * sum(len(epoch) for epoch in epochs) + 0.5), 1)
    shortened = []
    for epoch in epochs:
        shortened.append(list(epoch[:left]))
        left -= len(shortened[-1])
    return shortened
