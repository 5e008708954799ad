"""Avg: the plain mean of the clients' models, whatever the size of their data."""

from __future__ import annotations

from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round
from strategies.fedavg import uniform_weights


class Avg(BaseStrategy):
    """``w <- w + server_lr * mean_i v_i``."""

    def aggregate(self, this_round: Round) -> Vector:
        """Return the mean model."""
        return self.step(this_round, uniform_weights(len(this_round.clients)))
