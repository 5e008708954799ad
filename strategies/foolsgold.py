"""FoolsGold: Fung, Yoon, Beschastnikh, "The Limitations of Federated Learning in Sybil Settings",
RAID 2020; and the form of it in TACO's Algorithm 1.

``original``: clients whose summed updates ``H_i`` point the same way count as one and the same;
with ``s_ij = cos(H_i, H_j)`` and ``m_i = max_j s_ij``, the honest are pardoned
(``s_ij m_i / m_j`` where ``m_j > m_i``), and ``rho_i = kappa (logit(1 - max_j s_ij) + 1/2)``.
``taco``: ``rho_i = max(cos(Delta_i, mean_j Delta_j), 0)``; those who agree with the mean count,
the reverse of that idea. Either way ``w <- w + server_lr sum_i rho_i v_i / sum_j rho_j``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, cosines, mean_row
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.taco import normalised

SAME_DIRECTION = 1e-9
LEAST_TRUST, MOST_TRUST = 0.01, 0.99
BLOCK = 1 << 16


@dataclass(frozen=True)
class FoolsGoldParams:
    """Settings of FoolsGold."""

    variant: str = setting(
        "original",
        "original = dissimilarity over all rounds, taco = agreement with the mean update",
        choices=("original", "taco"),
    )
    kappa: float = setting(
        1.0,
        "variant=original: confidence of the logit; 0 = plain mean",
        low=0,
        needs="variant=original",
    )


class FoolsGold(BaseStrategy):
    """Aggregation weights by the direction of updates."""

    Params = FoolsGoldParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.history: Matrix = np.zeros((info.num_clients, 0), dtype=np.float32)

    def aggregate(self, this_round: Round) -> Vector:
        """Average by agreement, or by the history of updates."""
        if self.params.variant == "taco":
            return self.step(this_round, agreement_weights(this_round.updates))
        if not self.history.size:
            self.history = this_round.zeros((len(self.history), this_round.model.size))
        for client, update in zip(this_round.clients, this_round.updates, strict=True):
            self.history[client] += update
        similarity = pairwise_cosines(self.history, this_round.clients)
        return self.step(this_round, distinct_weights(similarity, self.params.kappa))

    def state(self) -> dict[str, Any]:
        """Return the clients' summed updates, empty unless they are used."""
        return super().state() | {"history": self.history}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the summed updates."""
        super().load_state(state)
        self.history = state["history"].copy()


def agreement_weights(deltas: Matrix) -> np.ndarray:
    """TACO, Algorithm 1: ``max(cos(D_i, mean D), 0)`` scaled to sum 1; all zero: uniform."""
    return _shares(np.maximum(cosines(deltas, mean_row(deltas)), 0.0))


def distinct_weights(similarity: Matrix, kappa: float = 1.0) -> np.ndarray:
    """Fung et al., Algorithm 1, scaled to sum 1; ``similarity`` is ``(n, n)``, its diagonal unused.

    Where no client differs from the others, all weigh the same.
    """
    alike = np.maximum(similarity, 0.0)
    np.fill_diagonal(alike, 0.0)
    nearest = alike.max(axis=1)
    pardon = np.ones_like(alike)
    np.divide(nearest[:, None], nearest, out=pardon, where=nearest > nearest[:, None])
    trust = 1.0 - (alike * pardon).max(axis=1)
    if trust.max() <= SAME_DIRECTION:
        return _shares(np.zeros(len(trust)))
    trust = np.clip(trust / trust.max(), LEAST_TRUST, MOST_TRUST)
    return _shares(np.clip(kappa * (np.log(trust / (1.0 - trust)) + 0.5), 0.0, 1.0))


def pairwise_cosines(rows: Matrix, chosen: Sequence[int] | None = None) -> Matrix:
    """Return the cosines of all pairs of rows in float64; 0 where either has no length.

    ``chosen`` are the rows to take, by default all.
    """
    chosen = range(len(rows)) if chosen is None else chosen
    products = np.zeros((len(chosen), len(chosen)))
    for start in range(0, rows.shape[1], BLOCK):
        block = rows[chosen, start : start + BLOCK].astype(np.float64)
        products += block @ block.T
    lengths = np.sqrt(np.diag(products))
    scale = np.outer(lengths, lengths)
    return np.clip(np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0), -1, 1)


def _shares(weights: np.ndarray) -> np.ndarray:
    return normalised(weights, np.ones(len(weights), dtype=bool))
