"""STEM: Khanduri, Sharma, Yang, Hong, Liu, Rajawat, Varshney, "STEM: A Stochastic Two-Sided
Momentum Algorithm Achieving Near-Optimal Sample and Communication Complexities for Federated
Learning", NeurIPS 2021; and the form of it in TACO's Algorithm 1.

Client: ``v_k = g_k + (1 - a)(v_{k-1} - grad at w_{k-1}, same batch)``, ``w_{k+1} = w_k - lr v_k``.
Server: ``v = mean_i v_i``, ``w <- w - server_lr (mean_i Delta_i + lr v)`` with ``v_i`` the client's
last direction; ``v`` is every client's first ``v_{k-1}`` in the next round. ``paper``: ``Delta_i``
ends at ``w_{K-1}``, where ``v_i`` was measured, so that it is applied once; with ``a = 1``, which
keeps no direction, clients take that step themselves. ``taco``: ``Delta_i`` ends at ``w_K``, and
the server applies ``v_i`` a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, weighted_sum
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class StemParams:
    """Settings of STEM."""

    a: float = setting(0.2, "1 - a of the last direction is kept; 1 = plain SGD", low=0, high=1)
    form: str = setting(
        "paper",
        "a client's last direction: paper = applied once, by the server; taco = by both",
        choices=("paper", "taco"),
    )


class Stem(BaseStrategy):
    """Momentum on both sides, with a second gradient in every local step."""

    Params = StemParams
    expects: ClassVar[tuple[str, ...]] = ("update", "direction")

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.direction: Vector = np.zeros(0, dtype=np.float32)
        self.last_step = 0.0

    @classmethod
    def misfit(cls, params: Any, has_statistics: bool, plain_steps: bool = True) -> str:
        """Refuse local steps that are not ``lr v``: the server takes each client's last one."""
        if plain_steps or params.form == "taco" or params.a == 1:
            return ""
        return (
            "stem.form=paper needs plain local steps: the server takes the clients' last step, and "
            "knows neither their momentum nor Adam's moments nor weight decay. Use optimizer=sgd "
            "momentum=0 weight-decay=0, or stem.form=taco."
        )

    def broadcast(self) -> dict[str, Vector]:
        """Send the mean direction, zero in the first round."""
        return {"direction": self.direction if self.direction.size else np.zeros_like(self.model)}

    def instruction(self, client: int) -> Instruction:
        """Send the length of the server's own step; the point before it is ``w + last_step v``."""
        return Instruction(config={"last-step": self.last_step})

    def aggregate(self, this_round: Round) -> Vector:
        """Average models and directions; step along the latter."""
        weights = uniform_weights(len(this_round.clients))
        self.direction = weighted_sum(weights, this_round.arrays["direction"])
        self.last_step = self.info.server_lr * this_round.lr
        move = self.combine(this_round, weights)
        if self.params.form == "taco" or self.params.a < 1:
            move = server_move(move, self.direction, this_round.lr)
        return self.advance(this_round, move)

    def state(self) -> dict[str, Any]:
        """Return the mean direction and the length of the last step along it."""
        return super().state() | {"direction": self.direction, "last_step": self.last_step}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        super().load_state(state)
        self.direction, self.last_step = state["direction"], state["last_step"]


def server_move(mean_update: Vector, direction: Vector, lr: float) -> Vector:
    """Return ``-(mean_i Delta_i + lr v)``: the mean update and a step along the mean direction."""
    return mean_update - np.float32(lr) * direction
