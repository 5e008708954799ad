"""pFedMe: Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes",
NeurIPS 2020.

Clients take steps on the Moreau envelope of their loss, ``w_i <- w_i - lr lam (w_i - theta_i)``
with ``theta_i`` near the minimum of ``f_i(theta) + lam/2 |theta - w_i|^2``, their personal model.
The server moves to ``(1 - beta) w + beta mean_i w_i``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class PFedMeParams:
    """Settings of pFedMe."""

    lam: float = setting(
        15.0,
        "weight of the personal model's distance from w_i",
        above=0,
        needs="inner-steps",
    )
    inner_steps: int = setting(
        5, "steps of the personal model per batch; 0 = plain mean (avg)", low=0, high=100_000
    )
    personal_lr: float = setting(
        0.01, "learning rate of the personal model", above=0, needs="inner-steps"
    )
    beta: float = setting(1.0, "step of the server towards the mean; 1 = the mean", above=0)
    scored: str = setting(
        "theta",
        "personal model that is scored: theta, or w = the client's copy w_i of the global one",
        choices=("theta", "w"),
        needs="inner-steps",
    )


class PFedMe(BaseStrategy):
    """A plain mean of the anchors ``w_i``; personal models stay with their clients."""

    Params = PFedMeParams

    def aggregate(self, this_round: Round) -> Vector:
        """Go ``beta`` of the way to the mean."""
        move = self.combine(this_round, uniform_weights(len(this_round.clients)))
        return self.advance(this_round, scaled(move, self.params.beta))


def scaled(move: Vector, beta: float) -> Vector:
    """Return ``beta * move``: ``(1 - beta) w + beta (w + move)`` is ``w + beta move``."""
    return move if beta == 1.0 else move * np.float32(beta)
