"""Algorithms from outside the package whose clients misbehave, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from bowl import Fitted

from clients.base import Client, Evaluation
from fedsuite.core.vector import Vector
from fedsuite.registry import Algorithm
from strategies.base import BaseStrategy, Round, RunInfo


class SometimesFails(Client):
    """Client 1 raises, client 2 returns NaN."""

    def fit(self, parameters: list[Vector], config: dict[str, Any]) -> Fitted:
        if self.context.client == 1:
            raise RuntimeError("client 1 lost its disk")
        vectors, count, metrics = super().fit(parameters, config)
        if self.context.client == 2:
            vectors = [np.full_like(vectors[0], np.nan)]
        return vectors, count, metrics


class AlwaysFails(Client):
    """Nobody ever trains."""

    def fit(self, parameters: list[Vector], config: dict[str, Any]) -> Fitted:
        raise RuntimeError("nobody is home")


class NoServer(BaseStrategy):
    """The server fails before its first round."""

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        raise RuntimeError("no room for the server")


class ExpelsEverybody(BaseStrategy):
    """Nobody is left after the first round."""

    def aggregate(self, this_round: Round) -> Vector:
        self.expelled |= set(this_round.clients)
        return super().aggregate(this_round)


class Diverges(BaseStrategy):
    """The aggregate is not finite from the second round on."""

    def aggregate(self, this_round: Round) -> Vector:
        scale = np.float32(np.inf if this_round.number > 1 else 1)
        return super().aggregate(this_round) * scale


class ScoresNothing(Client):
    """Client 1 has no test rows."""

    def score(self) -> Evaluation:
        return (0.0, 0, {"correct": 0}) if self.context.client == 1 else super().score()


EXPELS = Algorithm(ExpelsEverybody, Client)
DIVERGES = Algorithm(Diverges, Client)
NO_ROWS = Algorithm(BaseStrategy, ScoresNothing)
SOME = Algorithm(BaseStrategy, SometimesFails)
ALL = Algorithm(BaseStrategy, AlwaysFails)
NO_SERVER = Algorithm(NoServer, Client)
