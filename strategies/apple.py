"""APPLE: Luo, Wu, "Adapt to Adaptation: Learning Personalization for Cross-Silo Federated
Learning", IJCAI 2022.

Every client has a core model ``c_i``, which it shares, and relations ``p_i``, which it does not;
its personal model is ``sum_j p_ij c_j``. Both are learnt on
``f_i(sum_j p_ij c_j) + lambda(t) mu/2 |p_i - p_0|^2`` with ``p_0`` the clients' shares of the data
and ``lambda(t) = 0.001^((t-1)/L)`` over the first ``L`` rounds, then 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights
from strategies.pool import PoolStrategy

LAST = 1e-3


@dataclass(frozen=True)
class AppleParams:
    """Settings of APPLE."""

    mu: float = setting(
        0.1,
        "strength of the pull of the relations towards the data shares",
        low=0,
        needs=("p-lr", "fade"),
    )
    fade: float = setting(
        0.1,
        "fraction of the rounds over which the pull fades out",
        low=0,
        high=1,
        needs=("p-lr", "mu"),
    )
    p_lr: float = setting(0.01, "learning rate of the relations", low=0)
    start: str = setting(
        "shares",
        "initial relations: shares = data shares, own = own core only",
        choices=("shares", "own"),
    )


class Apple(PoolStrategy):
    """Sends all cores to every client."""

    Params = AppleParams

    def broadcast(self) -> dict[str, Vector]:
        """Send all cores (the initial model for a client without one) and the data shares."""
        sizes = [self.info.client_sizes[c] for c in range(self.info.num_clients)]
        cores = self.vectors.zeros(self.rows().shape)
        return {
            "cores": np.add(self.model, self.rows(), out=cores),
            "shares": sample_weights(np.array(sizes)).astype(np.float32),
        }

    def instruction(self, client: int) -> Instruction:
        """Send the strength of the pull on the relations in this round."""
        faded = loss_schedule(self.training_round, self.info.num_rounds, self.params.fade)
        return Instruction(config={"penalty": self.params.mu * faded})


def loss_schedule(server_round: int, num_rounds: int, fade: float) -> float:
    """Return ``lambda(t)``: from 1 down to 0.001 over ``L = fade * rounds``, then 0."""
    length = math.ceil(fade * num_rounds)
    passed = max(server_round - 1, 0)
    return float(LAST ** (passed / length)) if passed < length else 0.0
