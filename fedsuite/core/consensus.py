"""FedBaC's scores of a client: how far its updates agree with a direction, and how steadily.

A client computes them, or the server where the direction is one that only the server knows. A
history is a matrix of rows (round, cosine), oldest first; a row of round 0 is empty.
"""

from __future__ import annotations

import numpy as np

from fedsuite.core.vector import Doubles


def consensus(cosines: np.ndarray, gamma: float, floor: float = 0.0) -> Doubles:
    """Section 3.2: ``max(floor, c)^gamma``; printed with ``floor = 0``."""
    agreement: Doubles = np.maximum(np.asarray(cosines, dtype=np.float64), floor) ** gamma
    return agreement


def reliability(cosines: np.ndarray, alpha: float) -> float:
    """Section 3.3: ``exp(-alpha Var)`` over the recorded cosines; one value or none: 1."""
    return float(np.exp(-alpha * np.var(cosines))) if len(cosines) else 1.0


def empty_history(length: int) -> Doubles:
    """Return a history with room for the ``length + 1`` rounds of the wider window."""
    return np.zeros((length + 1, 2))


def remember(history: Doubles, server_round: int, cosine: float) -> Doubles:
    """Return the history with one more row, the oldest dropped."""
    return np.concatenate([history[1:], [[server_round, cosine]]])


def recent(history: Doubles, server_round: int, length: int, window: str) -> Doubles:
    """Return the cosines that count in a round.

    ``window = "values"``: the last ``length`` (Algorithm 1, line 20); ``"rounds"``: those of the
    rounds ``t - length`` to ``t`` (section 3.3), fewer where a client was not sampled.
    """
    rounds, cosines = history[:, 0], history[:, 1]
    if window == "rounds":
        return cosines[(rounds > 0) & (rounds >= server_round - length)]
    return cosines[rounds > 0][-length:]
