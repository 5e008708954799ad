"""FedDUAL: Sahoo, Tripathi, Saha, Mondal, "FedDUAL: A Dual-Strategy with Adaptive Loss and Dynamic
Aggregation for Mitigating Data Heterogeneity in Federated Learning", arXiv 2412.04416, 2024.

The body moves by the mean update, weighted by samples. The last layer moves by the Wasserstein
barycentre of its updates: their distribution of values is averaged quantile by quantile,
``q_(k) = sum_i n_i/n v_i(k)`` with ``v_i(k)`` the k-th smallest entry, and the k-th value goes to
the entry with the k-th smallest mean. Disagreeing clients then do not shrink the layer's step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, last_layer, sample_weights
from strategies.base import BaseStrategy, Round


@dataclass(frozen=True)
class FedDualParams:
    """Settings of FedDUAL."""

    adaptive_loss: bool = setting(
        True, "clients mix their loss with the divergence from the global model"
    )
    barycentre: bool = setting(True, "barycentre for the last layer; false = mean by samples")


class FedDual(BaseStrategy):
    """Mean for the body, barycentre for the last layer."""

    Params = FedDualParams

    def aggregate(self, this_round: Round) -> Vector:
        """Average, then replace the last layer's part of the move."""
        weights = sample_weights(this_round.num_examples)
        move = self.combine(this_round, weights)
        if self.params.barycentre:
            for part in last_layer(self.info.shapes).values():
                move[part] = barycentre(this_round.updates[:, part], weights)
        return self.advance(this_round, move)


def barycentre(rows: Matrix, weights: np.ndarray) -> Vector:
    """Return the 1-D Wasserstein barycentre of the rows' entries, laid out in the mean's order.

    Entries with the same mean share the values of their places equally.
    """
    entries = np.asarray(rows, dtype=np.float64)
    quantiles = weights @ np.sort(entries, axis=1)
    _, places, sizes = np.unique(weights @ entries, return_inverse=True, return_counts=True)
    totals = np.bincount(np.sort(places), weights=quantiles)
    return (totals / sizes)[places].astype(np.float32)
