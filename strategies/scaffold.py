"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020; coefficient as in TACO's Algorithm 1.

Client: ``w_i <- w_i - lr (g + coefficient (c - c_i))``, then ``c_i <- c_i - c + Delta_i/(K lr)``
(option II). Server: ``w <- w + server_lr mean_i v_i``, ``c <- c + sum_i dc_i / N`` with ``N`` all
clients, also those that did not take part.

As ``dc_i = Delta_i/(K_i lr) - c`` holds no ``c_i``, the server derives it from the update. That is
right for plain SGD with coefficient 1; otherwise ``c_i`` is the mean of the client's gradients
and ``dc_i`` is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, weighted_sum
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class ScaffoldParams:
    """Settings of SCAFFOLD."""

    coefficient: float = setting(1.0, "strength of the correction; 0 = plain mean", low=0)
    control: str = setting(
        "auto",
        "control variate: update = derived from the update, gradient = mean gradient, which is "
        "sent; auto = update where both are equal",
        choices=("auto", "update", "gradient"),
    )


class Scaffold(BaseStrategy):
    """Plain mean of clients that correct their drift by control variates."""

    Params = ScaffoldParams
    expects: ClassVar[tuple[str, ...]] = ("update", "control_change")
    needs_metrics: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        if self.params.control == "auto":
            choice = "update" if self.control_follows_from_update() else "gradient"
            self.params = dataclasses.replace(self.params, control=choice)
        self.control: Vector = np.zeros(0, dtype=np.float32)
        self.counted = np.zeros(info.num_clients, dtype=np.int64)

    def control_follows_from_update(self) -> bool:
        """Return whether an update over ``K lr``, less the correction, is the mean gradient."""
        return self.info.plain_sgd and self.params.coefficient in (0.0, 1.0)

    def broadcast(self) -> dict[str, Vector]:
        """Send ``c``, zero in the first round."""
        return {"control": self._control()}

    def instruction(self, client: int) -> Instruction:
        """Send which of a client's rounds counted last; a lost reply did not."""
        return Instruction(
            config={"counted": int(self.counted[client])},
            params={"control": self.params.control},
        )

    def lengths(self) -> dict[str, int]:
        """Expect ``dc_i`` only where it cannot be derived."""
        names = self.expects if self.params.control == "gradient" else ("update",)
        return dict.fromkeys(names, self.model.size)

    def aggregate(self, this_round: Round) -> Vector:
        """Average plainly; move ``c``."""
        total = self.info.num_clients
        if self.params.control == "gradient":
            changes = this_round.arrays["control_change"]
            move = weighted_sum(np.full(len(changes), 1.0 / total), changes)
        else:
            move = control_move(
                this_round.updates, self._control(), this_round.num_steps, this_round.lr, total
            )
        self.control = self._control() + move
        self.counted[this_round.clients] = this_round.number
        return self.step(this_round, uniform_weights(len(this_round.clients)))

    def state(self) -> dict[str, Any]:
        """Return ``c`` and whose replies counted when."""
        return super().state() | {"control": self.control, "counted": self.counted}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        super().load_state(state)
        self.control, self.counted = state["control"], state["counted"].copy()

    def _control(self) -> Vector:
        return self.control if self.control.size else np.zeros_like(self.model)


def control_move(
    updates: Matrix, control: Vector, num_steps: np.ndarray, lr: float, num_clients: int
) -> Vector:
    """Return ``sum_i dc_i / N`` with ``dc_i = -v_i/(K_i lr) - c``, each with its own steps."""
    steps = np.maximum(np.asarray(num_steps, dtype=np.float64), 1.0)
    gradients = weighted_sum(-1.0 / (num_clients * steps * lr), updates)
    return gradients - np.float32(len(updates) / num_clients) * control
