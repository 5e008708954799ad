"""TACO's tailored coefficients (Liu et al., Eq. 7 and Fig. 6) for the corrections of others.

Each client has an ``alpha_i``, high if its last update was short and along the mean. A method
mixed with :class:`Tailored` scales its own coefficient by ``1 - alpha_i``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.taco import FIRST_ALPHA, correction_coefficients


class Tailored(BaseStrategy):
    """Mixed in before a strategy: measures ``alpha_i`` in each round and remembers them."""

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.alpha = np.full(info.num_clients, FIRST_ALPHA)

    def aggregate(self, this_round: Round) -> Vector:
        """Aggregate as the method does; note the coefficients for the next round."""
        alpha = correction_coefficients(this_round.updates)
        self.alpha[this_round.clients] = alpha
        this_round.per_client["alpha"] = alpha
        return super().aggregate(this_round)

    def tailor(self, coefficient: float, client: int) -> float:
        """Return ``coefficient (1 - alpha_i)``."""
        return float(coefficient * (1.0 - self.alpha[client]))

    def state(self) -> dict[str, Any]:
        """Return the coefficients too."""
        return super().state() | {"alpha": self.alpha}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the coefficients."""
        super().load_state(state)
        self.alpha = state["alpha"].copy()
