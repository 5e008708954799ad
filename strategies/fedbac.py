"""FedBaC: Niebuhr, "FedBaC: Federated Bias-and-Consensus Aware Aggregation", Auburn University.

Clients are weighted by ``R_i C_i``: how far their update agrees with the server's momentum
(section 3.2) and how steadily it has done so (3.3). The server's rules are those of section 3.5.

As printed the method does not learn on its own experiment: with two classes per client one client
can take nearly the whole step. ``floor`` keeps every client in the mean; ``reference = "current"``
compares with a momentum that this round has already fed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.consensus import consensus, empty_history, recent, reliability, remember
from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, cosines, sample_weights, weighted_sum
from strategies.base import BaseStrategy, Round, RunInfo

ROUNDING = 1e-6


@dataclass(frozen=True)
class FedBacParams:
    """Settings of FedBaC."""

    beta: float = setting(0.9, "momentum of the global direction", low=0, high=0.9999)
    gamma: float = setting(1.0, "sharpness of the consensus", above=0)
    floor: float = setting(
        0.1, "least cosine that counts as agreement; 0 = as printed", low=0, high=1
    )
    reference: str = setting(
        "previous",
        "what an update is compared with: previous = the momentum that was sent, current = the "
        "momentum that this round's mean by samples has fed",
        choices=("previous", "current"),
    )
    alpha: float = setting(1.0, "sensitivity of the reliability", low=0)
    lam: float = setting(
        1e-6,
        "weight of the clients' regulariser",
        low=0,
        needs="regularizer=update or regularizer=gradient",
    )
    history: int = setting(
        5, "length H of the window of cosines", low=1, high=10_000, needs="alpha"
    )
    window: str = setting(
        "values",
        "values = a client's last H cosines (Algorithm 1), rounds = those of rounds t-H to t",
        choices=("values", "rounds"),
        needs="alpha",
    )
    regularizer: str = setting(
        "update",
        "what clients align with the momentum: update, gradient or none",
        choices=("update", "gradient", "none"),
        needs="lam",
    )
    printed_sign: bool = setting(
        False,
        "regularizer=gradient: the printed sign, which rewards opposition",
        needs=("regularizer=gradient", "lam"),
    )
    momentum_by: str = setting(
        "weights",
        "mean update in the momentum: by weights (section 3.5) or samples (3.2); "
        "reference=current: samples",
        choices=("weights", "samples"),
        needs="reference=previous",
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
        self.counted = np.zeros(info.num_clients, dtype=np.int64)
        history = empty_history(self.params.history)
        self.histories = np.tile(history, (info.num_clients, 1, 1))

    def broadcast(self) -> dict[str, Vector]:
        """Send the momentum, zero in the first round."""
        return {"momentum": self._momentum()}

    def instruction(self, client: int) -> Instruction:
        """Send which of a client's rounds counted last; a lost reply did not."""
        return Instruction(config={"counted": int(self.counted[client])})

    def aggregate(self, this_round: Round) -> Vector:
        """Section 3.5."""
        pull: Vector | None = None
        if self.params.reference == "current" or self.params.momentum_by == "samples":
            pull = weighted_sum(sample_weights(this_round.num_examples), this_round.updates)
        agreement, steadiness = self._scores(this_round, pull)
        weights = consensus_weights(agreement, steadiness, this_round.num_examples)
        move = self.combine(this_round, weights)
        self.momentum = self._feed(move if pull is None else pull)
        self.counted[this_round.clients] = this_round.number
        if self.params.score_clients:
            this_round.scalars |= couplings(this_round.metric("accuracy"), steadiness, weights)
        return self.advance(this_round, move)

    def state(self) -> dict[str, Any]:
        """Return the momentum, whose replies counted when, and the cosines taken here."""
        own = {"momentum": self.momentum, "counted": self.counted, "histories": self.histories}
        return super().state() | own

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        super().load_state(state)
        self.momentum, self.counted = state["momentum"], state["counted"].copy()
        self.histories = state["histories"].copy()

    def _scores(self, this_round: Round, pull: Vector | None) -> tuple[np.ndarray, np.ndarray]:
        """Return consensus and reliability: as sent, or by a momentum only the server knows."""
        if self.params.reference == "previous" or pull is None:
            return this_round.metric("consensus"), this_round.metric("reliability")
        params, now, reference = self.params, this_round.number, self._feed(pull)
        found, known = cosines(this_round.updates, reference), bool(reference.any())
        agreement = consensus(found, params.gamma, params.floor if known else 0.0)
        steadiness = np.ones(len(found))
        for index, client in enumerate(this_round.clients):
            if known:
                self.histories[client] = remember(self.histories[client], now, found[index])
            steady = recent(self.histories[client], now, params.history, params.window)
            steadiness[index] = reliability(steady, params.alpha)
        this_round.per_client |= {
            "cosine": found,
            "consensus": agreement,
            "reliability": steadiness,
        }
        return agreement, steadiness

    def _feed(self, mean: Vector) -> Vector:
        """Return ``beta vbar + (1 - beta) mean``."""
        beta = np.float32(self.params.beta)
        return beta * self._momentum() + (np.float32(1) - beta) * mean

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
    """Return the clients' mean accuracy (Fig. 4), how reliability and weight go with it over
    clients (Fig. 6), and the gap between the best client and the worst.
    """
    return {
        "client_accuracy": float(accuracy.mean()),
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
