"""FedBaC: Niebuhr, "FedBaC: Federated Bias-and-Consensus Aware Aggregation", Auburn University.

Clients are weighted by ``R_i C_i``: how far their update agrees with the server's momentum
(section 3.2) and how steadily it has done so (3.3). The server's rules are those of section 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights, weighted_sum
from strategies.base import BaseStrategy, Round, RunInfo

ROUNDING = 1e-6


@dataclass(frozen=True)
class FedBacParams:
    """Settings of FedBaC."""

    beta: float = setting(0.9, "momentum of the global direction", low=0, high=0.9999)
    gamma: float = setting(1.0, "sharpness of the consensus", above=0)
    alpha: float = setting(1.0, "sensitivity of the reliability", low=0)
    lam: float = setting(1e-6, "weight of the clients' regulariser", low=0)
    history: int = setting(5, "number of rounds whose cosines a client keeps", low=1)
    regularizer: str = setting(
        "update",
        "what clients align with the momentum: update, gradient or none",
        choices=("update", "gradient", "none"),
    )
    printed_sign: bool = setting(
        False, "regularizer=gradient: the printed sign, which rewards opposition"
    )
    momentum_by: str = setting(
        "weights",
        "mean update in the momentum: by weights (section 3.5) or samples (3.2)",
        choices=("weights", "samples"),
    )
    score_clients: bool = setting(True, "clients score the received model on their own samples")


class FedBac(BaseStrategy):
    """Aggregation by consensus and reliability."""

    Params = FedBacParams
    needs_metrics: ClassVar[tuple[str, ...]] = ("consensus", "reliability", "accuracy")
    limits = dict.fromkeys(needs_metrics, (0.0, 1.0 + ROUNDING))

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.momentum: Vector = np.zeros(0, dtype=np.float32)

    def broadcast(self) -> dict[str, Vector]:
        """Send the momentum, zero in the first round."""
        return {"momentum": self._momentum()}

    def aggregate(self, this_round: Round) -> Vector:
        """Section 3.5."""
        consensus, reliability = this_round.metric("consensus"), this_round.metric("reliability")
        weights = consensus_weights(consensus, reliability, this_round.num_examples)
        beta = np.float32(self.params.beta)
        move = self.combine(this_round, weights)
        pull = move
        if self.params.momentum_by == "samples":
            pull = weighted_sum(sample_weights(this_round.num_examples), this_round.updates)
        self.momentum = beta * self._momentum() + (np.float32(1) - beta) * pull
        if self.params.score_clients:
            this_round.scalars |= couplings(this_round.metric("accuracy"), reliability, weights)
        return self.advance(this_round, move)

    def state(self) -> dict[str, Any]:
        """Return the momentum."""
        return super().state() | {"momentum": self.momentum}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the momentum."""
        super().load_state(state)
        self.momentum = state["momentum"]

    def _momentum(self) -> Vector:
        return self.momentum if self.momentum.size else np.zeros_like(self.model)


def consensus_weights(
    consensus: np.ndarray, reliability: np.ndarray, num_examples: np.ndarray
) -> np.ndarray:
    """Return weights proportional to ``R_i C_i``; all zero: by samples."""
    products = np.asarray(reliability, dtype=np.float64) * np.asarray(consensus, dtype=np.float64)
    return products / products.sum() if products.sum() > 0 else sample_weights(num_examples)


def couplings(
    accuracy: np.ndarray, reliability: np.ndarray, weights: np.ndarray
) -> dict[str, float]:
    """Return how reliability and weight go with accuracy over clients, and the fairness gap."""
    return {
        "reliability_coupling": spearman(reliability, accuracy),
        "contribution_coupling": spearman(weights, accuracy),
        "fairness_gap": float(accuracy.max() - accuracy.min()),
    }


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation, ties at their mean rank; 0 where one side does not vary."""
    x, y = (_ranks(values) - (len(values) + 1) / 2 for values in (a, b))
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
