"""FedAMP: Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, "Personalized Cross-Silo Federated Learning on
Non-IID Data", AAAI 2021.

Client ``i`` is pulled to a cloud model of its own, ``u_i = sum_j xi_ij w_j``. Others weigh
``xi_ij = alpha A'(x_ij) / (n - 1)`` with ``A'(x) = exp(-x / sigma) / sigma``, the own model the
rest, ``xi_ii = 1 - sum_j xi_ij``. ``x_ij`` is ``|w_i - w_j|^2`` in units of its median over pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, weighted_sum
from strategies.base import Round, RunInfo
from strategies.pool import PoolStrategy


@dataclass(frozen=True)
class FedAmpParams:
    """Settings of FedAMP."""

    sigma: float = setting(
        1.0, "scale of the attention, in units of the median squared distance", above=0
    )
    alpha: float = setting(1.0, "step size of the cloud models towards the others", above=0)
    lam: float = setting(1.0, "pull towards the cloud model is lam/alpha; 0 = local", low=0)


class FedAmp(PoolStrategy):
    """Attention between clients' models."""

    Params = FedAmpParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.attention = np.eye(info.num_clients)

    def instruction(self, client: int) -> Instruction:
        """Send a client its cloud model; an empty vector before its first update."""
        if not self.known[client]:
            return Instruction({"cloud": np.zeros(0, dtype=np.float32)})
        return Instruction(
            {"cloud": self.model + weighted_sum(self.attention[client], self.rows())}
        )

    def aggregate(self, this_round: Round) -> Vector:
        """Keep the models and renew the attention between all."""
        model = super().aggregate(this_round)
        known = np.flatnonzero(self.known)
        distances = squared_distances(self.rows()[known])
        self.attention[np.ix_(known, known)] = attention(
            distances, self.params.sigma, self.params.alpha
        )
        this_round.per_client["self_attention"] = np.diag(self.attention)[this_round.clients]
        this_round.scalars["mean_self_attention"] = float(np.diag(self.attention)[known].mean())
        return model

    def state(self) -> dict[str, Any]:
        """Return the models and the attention between them."""
        return super().state() | {"attention": self.attention}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the models and the attention."""
        super().load_state(state)
        self.attention = np.array(state["attention"])


def squared_distances(rows: Matrix) -> np.ndarray:
    """Return ``|w_i - w_j|^2`` for all pairs, in float64; equal rows are exactly 0 apart."""
    distances = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        for j in range(i):
            gap = np.subtract(row, rows[j], dtype=np.float64)
            distances[i, j] = distances[j, i] = np.einsum("i,i->", gap, gap)
    return distances


def attention(distances: np.ndarray, sigma: float, alpha: float) -> np.ndarray:
    """Return ``xi``: rows sum to 1, none is negative; others take no more than all of it."""
    count = len(distances)
    apart = distances[np.tril_indices(count, -1)]
    unit = float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0
    weights = np.exp(-distances / unit / sigma) / sigma * (alpha / max(count - 1, 1))
    np.fill_diagonal(weights, 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    np.fill_diagonal(weights, np.maximum(1.0 - weights.sum(axis=1), 0.0))
    return weights
