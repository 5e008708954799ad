"""FedACG: Kim, Kim, Han, "Communication-Efficient Federated Learning with Accelerated Client
Gradient", CVPR 2024.

Clients receive the look-ahead point ``w + lam m``, train from there and are held near it by
``beta/2 |w_local - (w + lam m)|^2``. With ``v_i`` the update from that point,
``m <- lam m + server_lr mean_i v_i`` and ``w <- w + m``. The result is ``w``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class FedAcgParams:
    """Settings of FedACG."""

    lam: float = setting(0.85, "server momentum", low=0, high=0.9999)
    beta: float = setting(0.001, "weight of the proximal term around the look-ahead point", low=0)


class FedAcg(BaseStrategy):
    """Server momentum that clients start ahead of."""

    Params = FedAcgParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.momentum: Vector = np.zeros(0, dtype=np.float32)

    def training_start(self) -> Vector:
        """Send ``w + lam m`` in place of ``w``; ``w`` in the first round."""
        return ahead(self.model, self.momentum, self.params.lam)

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the momentum, which the mean update joins."""
        mean = self.combine(this_round, uniform_weights(len(this_round.clients)))
        mean = mean * np.float32(self.info.server_lr)
        self.momentum = ahead(mean, self.momentum, self.params.lam)
        return this_round.model + self.momentum

    def state(self) -> dict[str, Any]:
        """Return the momentum."""
        return super().state() | {"momentum": self.momentum}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the momentum."""
        super().load_state(state)
        self.momentum = state["momentum"]


def ahead(vector: Vector, momentum: Vector, lam: float) -> Vector:
    """Return ``vector + lam m``; an empty ``m`` is zero."""
    return vector + np.float32(lam) * momentum if momentum.size and lam else vector
