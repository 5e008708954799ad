"""FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification", 2019.

``m <- beta m + sum_i p_i v_i`` with ``p_i = n_i / sum_j n_j``, and ``w <- w + server_lr m``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedacg import ahead


@dataclass(frozen=True)
class FedAvgMParams:
    """Settings of FedAvgM."""

    beta: float = setting(0.9, "server momentum; 0 = FedAvg", low=0, high=0.9999)


class FedAvgM(BaseStrategy):
    """FedAvg with momentum at the server."""

    Params = FedAvgMParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.momentum: Vector = np.zeros(0, dtype=np.float32)

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the momentum, which the mean update joins."""
        mean = self.combine(this_round, sample_weights(this_round.num_examples))
        self.momentum = ahead(mean, self.momentum, self.params.beta)
        return self.advance(this_round, self.momentum)

    def state(self) -> dict[str, Any]:
        """Return the momentum."""
        return super().state() | {"momentum": self.momentum}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the momentum."""
        super().load_state(state)
        self.momentum = state["momentum"]
