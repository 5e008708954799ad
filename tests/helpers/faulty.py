"""Algorithms from outside the package whose clients misbehave, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from bowl import Fitted

from clients.base import Client
from fedsuite.core.vector import Vector
from fedsuite.registry import Algorithm
from strategies.base import BaseStrategy, RunInfo


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


SOME = Algorithm(BaseStrategy, SometimesFails)
ALL = Algorithm(BaseStrategy, AlwaysFails)
NO_SERVER = Algorithm(NoServer, Client)
