"""FedADW: Wang, Li, Yao, Li, "Adaptive Federated Learning Framework with Discrepancy Weight
Aggregation".

Clients send how far their classes are from uniform (Eq. 11); the server weights them by their share
of the data less a penalty for that (Eq. 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from flwr.app import Message, MetricRecord

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights
from strategies.base import BaseStrategy, Round


@dataclass(frozen=True)
class FedAdwParams:
    """Settings of FedADW."""

    adaptive: bool = setting(
        True, "adaptive local aggregation; false = start from the global model"
    )
    weights: str = setting(
        "discrepancy",
        "client weights: discrepancy = Eq. 12, samples = by samples",
        choices=("discrepancy", "samples"),
    )
    x: float = setting(0.5, "penalty on the discrepancy", low=0)
    y: float = setting(0.1, "offset of every client weight", low=0)
    normalise_discrepancy: bool = setting(True, "divide discrepancies by their sum")
    ala_layers: int = setting(2, "number of top layers aggregated adaptively; 0 = all", low=0)
    ala_percent: int = setting(
        80, "per cent of a client's samples used to learn the mixing weights", low=1, high=100
    )
    ala_lr: float = setting(1.0, "learning rate of the mixing weights", above=0)
    ala_tolerance: float = setting(
        0.01, "first learning ends when the losses' standard deviation is below", above=0
    )
    ala_max_epochs: int = setting(50, "maximum epochs of the first learning", low=1)


class FedAdw(BaseStrategy):
    """Average by samples less discrepancy."""

    Params = FedAdwParams
    needs_metrics: ClassVar[tuple[str, ...]] = ("discrepancy",)
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"discrepancy": (0.0, 100.0)}

    def aggregate(self, this_round: Round) -> Vector:
        """Eqs. 12 and 13."""
        if self.params.weights == "samples":
            return self.step(this_round, sample_weights(this_round.num_examples))
        discrepancies = this_round.metric("discrepancy")
        if self.params.normalise_discrepancy and discrepancies.sum() > 0:
            discrepancies = discrepancies / discrepancies.sum()
        weights = discrepancy_weights(
            this_round.num_examples, discrepancies, self.params.x, self.params.y
        )
        return self.step(this_round, weights)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Summarise clients' scores, and the global model's scores on the same rows."""
        metrics = super().aggregate_evaluate(server_round, replies)
        rows = [row for row in self.round_record.rows if "global_correct" in row]
        if rows:
            correct = sum(row["global_correct"] for row in rows)
            total = sum(row["num_examples"] for row in rows)
            self.round_record.scalars["personal_global_accuracy"] = correct / total
        return metrics


def discrepancy_weights(num_examples: np.ndarray, d: np.ndarray, x: float, y: float) -> np.ndarray:
    """Eq. 12, floored at zero and scaled to sum 1; all zero: by samples."""
    shares = sample_weights(num_examples)
    weights = np.maximum(shares - x * np.asarray(d, dtype=np.float64) + y, 0.0)
    return weights / weights.sum() if weights.sum() > 0 else shares
