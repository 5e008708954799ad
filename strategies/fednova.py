"""FedNova: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization", NeurIPS 2020.

``w <- w + server_lr tau_eff sum_i p_i v_i / |a_i|`` with ``tau_eff = sum_i p_i |a_i|``: clients
that took more steps count no more. ``|a_i|`` is how many gradients an update is made of: its steps
``K_i``, or with momentum ``rho`` in each of them ``(K_i - rho (1 - rho^K_i)/(1 - rho))/(1 - rho)``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsuite.core.vector import Doubles, Vector, sample_weights
from strategies.base import BaseStrategy, Round


class FedNova(BaseStrategy):
    """Average of updates per gradient, times the mean number of gradients."""

    needs_metrics: ClassVar[tuple[str, ...]] = ("steps",)

    def aggregate(self, this_round: Round) -> Vector:
        """Average normalised updates."""
        counts = gradients_in(this_round.num_steps, self.info.momentum)
        return self.step(this_round, normalised(sample_weights(this_round.num_examples), counts))


def gradients_in(steps: np.ndarray, momentum: float) -> Doubles:
    """Return ``|a_i|``, the sum of the weights that a client's gradients have in its update.

    >>> gradients_in(np.array([1, 2, 3]), 0.5)  # 1; 1 + 1.5; 1 + 1.5 + 1.75
    array([1.  , 2.5 , 4.25])
    """
    count = np.maximum(np.asarray(steps, dtype=np.float64), 1.0)
    if not momentum:
        return count
    return (count - momentum * (1.0 - momentum**count) / (1.0 - momentum)) / (1.0 - momentum)


def normalised(shares: Doubles, counts: Doubles) -> Doubles:
    """Return ``tau_eff p_i / |a_i|``; ``p_i`` itself where all clients took the same steps."""
    if (counts == counts[0]).all():
        return shares
    return float(shares @ counts) * shares / counts
