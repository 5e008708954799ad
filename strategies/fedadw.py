"""FedADW: Wang, Li, Yao, Li, "Adaptive Federated Learning Framework with Discrepancy Weight
Aggregation".

Clients send how far their classes are from uniform (Eq. 11); the server weights them by their share
of the data less a penalty for that (Eq. 12), or, by the sign that Eq. 11 prints, plus a reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flwr.app import Message, MetricRecord

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, sample_weights, top_layers
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedala import FedAlaParams


@dataclass(frozen=True)
class FedAdwParams(FedAlaParams):
    """Settings of FedADW."""

    weights: str = setting(
        "discrepancy",
        "client weights: discrepancy = Eq. 12, samples = by samples",
        choices=("discrepancy", "samples"),
    )
    x: float = setting(0.5, "strength of the discrepancy", low=0, needs="weights=discrepancy")
    y: float = setting(0.1, "offset of every client weight", low=0, needs="weights=discrepancy")
    normalise_discrepancy: bool = setting(
        True, "divide discrepancies by their sum", needs=("weights=discrepancy", "x")
    )
    discrepancy_sign: str = setting(
        "penalty",
        "a discrepancy lowers a client's weight (section 3.3) or raises it (Eq. 11 as printed)",
        choices=("penalty", "reward"),
        needs=("weights=discrepancy", "x"),
    )
    ala_layers: int = setting(
        2,
        "number of top layers aggregated adaptively, normalisation not counted; 0 = all",
        low=0,
        needs="adaptive=true or send-weights=true",
    )
    send_weights: bool = setting(False, "clients send their mixing weights, for the record")


class FedAdw(BaseStrategy):
    """Average by samples less discrepancy."""

    Params = FedAdwParams
    expects: ClassVar[tuple[str, ...]] = ("update", "ala_weights")
    needs_metrics: ClassVar[tuple[str, ...]] = ("discrepancy",)
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"discrepancy": (0.0, 100.0)}

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        parts = top_layers(info.shapes, self.params.ala_layers) if self.params.send_weights else {}
        first = min((part.start for part in parts.values()), default=0)
        self.parts = {n: slice(p.start - first, p.stop - first) for n, p in parts.items()}
        width = max((part.stop for part in self.parts.values()), default=0)
        self.ala_weights: Matrix = np.ones((info.num_clients, width), dtype=np.float32)

    def lengths(self) -> dict[str, int]:
        """Expect a mixing weight per parameter of the top layers, if they are sent."""
        lengths = {"update": self.model.size}
        if self.params.send_weights:
            lengths["ala_weights"] = self.ala_weights.shape[1]
        return lengths

    def aggregate(self, this_round: Round) -> Vector:
        """Eqs. 12 and 13."""
        if self.params.send_weights:
            self._keep(this_round)
        if self.params.weights == "samples":
            return self.step(this_round, sample_weights(this_round.num_examples))
        discrepancies = this_round.metric("discrepancy")
        if self.params.normalise_discrepancy and discrepancies.sum() > 0:
            discrepancies = discrepancies / discrepancies.sum()
        sign = 1.0 if self.params.discrepancy_sign == "penalty" else -1.0
        weights = discrepancy_weights(
            this_round.num_examples, discrepancies, sign * self.params.x, self.params.y
        )
        return self.step(this_round, weights)

    def kept_files(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the mixing weights that were sent last: per layer, a row per client."""
        layers = {n: np.ascontiguousarray(self.ala_weights[:, p]) for n, p in self.parts.items()}
        return {"mixing-weights": layers} if layers else {}

    def state(self) -> dict[str, Any]:
        """Return each client's last mixing weights."""
        return super().state() | {"ala_weights": self.ala_weights}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        super().load_state(state)
        self.ala_weights = state["ala_weights"].copy()

    def _keep(self, this_round: Round) -> None:
        """Keep the mixing weights that were sent; record their mean per layer."""
        sent = this_round.arrays["ala_weights"]
        self.ala_weights[this_round.clients] = sent
        for layer, part in self.parts.items():
            means = sent[:, part].mean(axis=1, dtype=np.float64)
            name = f"ala_{layer.replace('.', '_')}"
            this_round.per_client[name] = means
            this_round.scalars[name] = float(means.mean())

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
    """Eq. 12, floored at zero and scaled to sum 1; all zero: by samples. ``x < 0`` rewards."""
    shares = sample_weights(num_examples)
    weights = np.maximum(shares - x * np.asarray(d, dtype=np.float64) + y, 0.0)
    return weights / weights.sum() if weights.sum() > 0 else shares
