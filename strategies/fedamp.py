"""FedAMP: Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, "Personalized Cross-Silo Federated Learning on
Non-IID Data", AAAI 2021.

Client ``i`` is pulled to a cloud model of its own, ``u_i = sum_j xi_ij w_j``. Others weigh
``xi_ij = alpha A'(x_ij) / (n - 1)`` with ``A'(x) = exp(-x / sigma) / sigma``, the own model the
rest, ``xi_ii = 1 - sum_j xi_ij``. ``x_ij`` is ``|w_i - w_j|^2`` in units of its median over pairs.
HeurFedAMP, for deep networks, fixes ``xi_ii`` and shares the rest by cosines:
``xi_ij = (1 - xi_ii) exp(s cos(w_i, w_j)) / sum_{h != i} exp(s cos(w_i, w_h))``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, cosines, weighted_sum
from strategies.base import Round, RunInfo
from strategies.pool import PoolStrategy


@dataclass(frozen=True)
class FedAmpParams:
    """Settings of FedAMP."""

    sigma: float = setting(
        1.0,
        "scale of the attention, in units of the median squared distance",
        above=0,
        needs="heuristic=false",
    )
    alpha: float = setting(1.0, "step size of the cloud models towards the others", above=0)
    lam: float = setting(0.1, "pull towards the cloud model is lam/alpha; 0 = local", low=0)
    heuristic: bool = setting(False, "HeurFedAMP: attention by cosines instead of distances")
    sharpness: float = setting(
        25.0,
        "heuristic=true: factor of the cosines (its sigma)",
        low=0,
        needs="heuristic=true",
    )
    self_weight: float = setting(
        0.0,
        "heuristic=true: weight of the own model; 0 = 1/n of n models",
        low=0,
        high=1,
        needs="heuristic=true",
    )


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
        self.attention[np.ix_(known, known)] = self._attention(known, this_round)
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

    def _attention(self, known: np.ndarray, this_round: Round) -> np.ndarray:
        """Return the weights of the known models."""
        own, updates = self.params, [self.rows()[client] for client in known]
        if not own.heuristic:
            return attention(squared_distances(updates), own.sigma, own.alpha)
        models = this_round.zeros((len(updates), self.model.size))
        for model, update in zip(models, updates, strict=True):
            np.add(self.model, update, out=model)
        return cosine_attention(models, own.sharpness, own.self_weight)


def squared_distances(rows: Sequence[Vector] | Matrix) -> np.ndarray:
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


def cosine_attention(models: Matrix, sharpness: float, self_weight: float = 0.0) -> np.ndarray:
    """Return HeurFedAMP's ``xi``: rows sum to 1; of one model alone it is all of it."""
    count = len(models)
    if count == 1:
        return np.ones((1, 1))
    own = self_weight or 1.0 / count
    logits = sharpness * np.stack([cosines(models, model) for model in models])
    np.fill_diagonal(logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights *= (1.0 - own) / weights.sum(axis=1, keepdims=True)
    np.fill_diagonal(weights, own)
    return weights
