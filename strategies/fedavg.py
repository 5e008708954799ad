"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017.

``w <- w + server_lr * sum_i p_i v_i`` with ``v_i = w_i - w`` and ``p_i = n_i / sum_j n_j``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights
from strategies.base import BaseStrategy, Round


@dataclass(frozen=True)
class FedAvgParams:
    """Settings of FedAvg."""

    weighting: str = setting(
        "samples", "client weights: by samples or uniform", choices=("samples", "uniform")
    )


class FedAvg(BaseStrategy):
    """Average of the clients' models, by samples or uniform."""

    Params = FedAvgParams

    def aggregate(self, this_round: Round) -> Vector:
        """Return the averaged model."""
        if self.params.weighting == "uniform":
            return self.step(this_round, uniform_weights(len(this_round.clients)))
        return self.step(this_round, sample_weights(this_round.num_examples))


def uniform_weights(count: int) -> np.ndarray:
    """Return ``1/n`` for each of ``n`` clients."""
    return np.full(count, 1.0 / count)
