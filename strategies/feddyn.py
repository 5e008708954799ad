"""FedDyn: Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic
Regularization", ICLR 2021.

Client: gradient ``g - g_i + alpha (w_i - w)``, then ``g_i <- g_i - alpha v_i``. Server:
``h <- h - alpha sum_i v_i / N`` with ``N`` all clients, and ``w <- w + server_lr (mean_i v_i -
h / alpha)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round, RunInfo
from strategies.fedavg import uniform_weights


@dataclass(frozen=True)
class FedDynParams:
    """Settings of FedDyn."""

    alpha: float = setting(0.01, "weight of the dynamic regulariser; 0 = plain mean", low=0)


class FedDyn(BaseStrategy):
    """Plain mean of clients that are pulled to where all of them agree, less the drift so far."""

    Params = FedDynParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.drift: Vector = np.zeros(0, dtype=np.float32)
        self.counted = np.zeros(info.num_clients, dtype=np.int64)

    def instruction(self, client: int) -> Instruction:
        """Send which of a client's rounds counted last; a lost reply did not."""
        return Instruction(config={"counted": int(self.counted[client])})

    def aggregate(self, this_round: Round) -> Vector:
        """Average plainly; take back what clients have drifted over all rounds."""
        count = len(this_round.clients)
        mean = self.combine(this_round, uniform_weights(count))
        self.counted[this_round.clients] = this_round.number
        if self.params.alpha:
            self.drift = drifted(self.drift, mean, count / self.info.num_clients)
            mean = mean + self.drift
        return self.advance(this_round, mean)

    def state(self) -> dict[str, Any]:
        """Return the drift, and whose replies counted when."""
        return super().state() | {"drift": self.drift, "counted": self.counted}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        super().load_state(state)
        self.drift, self.counted = state["drift"], state["counted"].copy()


def drifted(drift: Vector, mean: Vector, share: float) -> Vector:
    """Return ``-h / alpha`` after a round of a share of the clients; an empty drift is zero."""
    moved = np.float32(share) * mean
    return drift + moved if drift.size else moved
