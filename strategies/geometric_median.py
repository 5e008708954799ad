"""Geometric median: Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE
Transactions on Signal Processing 2022 (RFA).

The point whose distances to all updates, weighted by samples, have the least sum, by Weiszfeld's
smoothed steps: from the weighted mean, ``b_i = p_i / max(nu, |z - v_i|)`` and
``z <- sum_i b_i v_i / sum_j b_j``. Then ``w <- w + server_lr z``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Doubles, Matrix, Vector, norms, sample_weights, weighted_sum
from strategies.base import BaseStrategy, Round


@dataclass(frozen=True)
class GeometricMedianParams:
    """Settings of the geometric median."""

    iterations: int = setting(3, "steps from the mean to the median; 0 = FedAvg", low=0, high=1000)
    nu: float = setting(1e-6, "least distance, against a division by zero", above=0)


class GeometricMedian(BaseStrategy):
    """FedAvg with weights that fall with an update's distance to the median."""

    Params = GeometricMedianParams

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the geometric median of updates."""
        shares = sample_weights(this_round.num_examples)
        found = weiszfeld(this_round.updates, shares, self.params.iterations, self.params.nu)
        return self.step(this_round, found)


def weiszfeld(updates: Matrix, shares: Doubles, iterations: int, nu: float) -> Doubles:
    """Return the weights of the updates in their geometric median after some steps."""
    weights = shares
    for _ in range(iterations):
        centre = weighted_sum(weights, updates)
        away = np.array([norms((update - centre)[None])[0] for update in updates])
        weights = shares / np.maximum(nu, away)
        weights = weights / weights.sum()
    return weights
