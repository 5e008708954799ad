"""Krum and Multi-Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with
Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.

Of ``n`` updates up to ``f`` may be anything. The score of one is the sum of its squared distances
to its ``n - f - 2`` nearest others. Krum moves by the update of the lowest score, Multi-Krum by the
mean of the ``n - f`` lowest. Both need ``n >= 2 f + 3``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Doubles, Vector, squared_distances
from strategies.base import BaseStrategy, Round
from strategies.median import count_in


@dataclass(frozen=True)
class KrumParams:
    """Settings of Krum and Multi-Krum."""

    tolerated: float = setting(
        0.2, "share of a round's clients that may be attackers", low=0, high=0.499
    )


class Krum(BaseStrategy):
    """The update that is nearest to its neighbours."""

    Params = KrumParams

    @classmethod
    def shortage(cls, params: Any, clients: int, layers: int | None = None) -> str:
        """Refuse fewer clients per round than the bound asks for."""
        attackers = count_in(params.tolerated, clients)
        if clients >= least_clients(attackers):
            return ""
        return (
            f"{clients} clients in a round, of whom up to {attackers} may attack, are too few for "
            f"Krum, which needs {least_clients(attackers)}: twice the attackers and three more. "
            "Lower the algorithm's setting `tolerated`, or have more clients in a round."
        )

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the chosen updates."""
        attackers = count_in(self.params.tolerated, len(this_round.clients))
        scores = krum_scores(this_round.updates, attackers)
        this_round.per_client["krum"] = scores
        return self.step(this_round, lowest(scores, self.chosen(len(scores), attackers)))

    def chosen(self, clients: int, attackers: int) -> int:
        """Return how many updates are averaged: one, the first of those with the lowest score."""
        return 1


class MultiKrum(Krum):
    """The mean of all but the ``f`` updates that are farthest from their neighbours."""

    def chosen(self, clients: int, attackers: int) -> int:
        """Return ``n - f``."""
        return clients - attackers


def least_clients(attackers: int) -> int:
    """Return how many updates Krum needs, ``2 f + 3``."""
    return 2 * attackers + 3


def krum_scores(updates: np.ndarray, attackers: int) -> Doubles:
    """Return each update's sum of squared distances to its ``n - f - 2`` nearest others."""
    apart = squared_distances(updates)
    np.fill_diagonal(apart, np.inf)
    nearest = np.sort(apart, axis=1)[:, : len(updates) - attackers - 2]
    return nearest.sum(axis=1)


def lowest(scores: Doubles, count: int) -> Doubles:
    """Return ``1/count`` for the ``count`` lowest scores, the earlier of equal ones; 0 elsewhere.

    >>> lowest(np.array([3.0, 1.0, 2.0, 1.0]), 2)
    array([0. , 0.5, 0. , 0.5])
    """
    shares = np.zeros(len(scores))
    shares[np.argsort(scores, kind="stable")[:count]] = 1.0 / count
    return shares
