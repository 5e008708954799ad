"""FedFomo: Zhang, Sapra, Fidler, Yeung, Alvarez, "Personalized Federated Learning with First Order
Model Optimization", ICLR 2021.

A client receives ``M`` other clients' models and mixes those that help it. The server learns from
what it reports, ``P_ij <- P_ij + gain_ij``, whose models to send: the ``M`` of highest affinity, or
with probability ``epsilon (1 - decay)^(t-1)`` any ``M``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuite.core import seeds
from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector
from strategies.base import Round, RunInfo
from strategies.pool import PoolStrategy


@dataclass(frozen=True)
class FedFomoParams:
    """Settings of FedFomo."""

    models: int = setting(5, "number of models a client receives; 0 = none", low=0, high=100_000)
    epsilon: float = setting(
        0.3, "probability of random models in round 1", low=0, high=1, needs="models"
    )
    decay: float = setting(
        0.05,
        "decay of that probability per round",
        low=0,
        high=1,
        needs=("models", "epsilon"),
    )
    validation: float = setting(
        0.2, "fraction of a client's training samples held out; 0 = use all", low=0, high=0.9
    )


class FedFomo(PoolStrategy):
    """Keeps models and affinities, and chooses who receives whose model."""

    Params = FedFomoParams
    expects: ClassVar[tuple[str, ...]] = ("update", "statistics", "gains")
    kept: ClassVar[tuple[str, ...]] = ("update", "statistics")

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.affinity = np.zeros((info.num_clients, info.num_clients))

    def lengths(self) -> dict[str, int]:
        """A model, its float buffers, and one number per client."""
        return {
            "update": self.model.size,
            "statistics": self.buffers.size,
            "gains": self.info.num_clients,
        }

    def instruction(self, client: int) -> Instruction:
        """Send other clients' models with their statistics, in client order."""
        peers = self._peers(client)
        arrays = {
            "peers": self.model + self.rows()[peers],
            "peer_statistics": self.buffers + self.rows("statistics")[peers],
        }
        return Instruction(arrays, {"peer-ids": peers})

    def aggregate(self, this_round: Round) -> Vector:
        """Remember models and add up what clients gained from others'."""
        self.affinity[this_round.clients] += this_round.arrays["gains"]
        return super().aggregate(this_round)

    def state(self) -> dict[str, Any]:
        """Return models and affinities."""
        return super().state() | {"affinity": self.affinity}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the models and affinities."""
        super().load_state(state)
        self.affinity = np.array(state["affinity"])

    def _peers(self, client: int) -> list[int]:
        others = [c for c in np.flatnonzero(self.known) if c != client and c not in self.expelled]
        return choose_peers(
            self.affinity[client],
            np.array(others, dtype=np.int64),
            self.params.models,
            exploration(self.params.epsilon, self.params.decay, self.training_round),
            seeds.generator(self.info.seed, "peers", self.training_round, client),
        )


def exploration(epsilon: float, decay: float, server_round: int) -> float:
    """Return the probability of random models in a round: ``epsilon (1 - decay)^(t-1)``."""
    return float(epsilon * (1.0 - decay) ** (server_round - 1))


def choose_peers(
    affinity: np.ndarray,
    others: np.ndarray,
    count: int,
    epsilon: float,
    draw: np.random.Generator,
) -> list[int]:
    """Return ``count`` of the others, sorted: random, or of highest affinity, ties at random."""
    explore = draw.random() < epsilon
    shuffled = draw.permutation(others)
    if not explore:
        shuffled = shuffled[np.argsort(-affinity[shuffled], kind="stable")]
    return sorted(int(client) for client in shuffled[:count])
