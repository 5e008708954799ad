"""Every algorithm with two clients in trouble: ``troubled:NAME``, with underscores."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from bowl import Fitted

from clients.base import Client
from fedsuite import registry
from fedsuite.core.vector import Vector


def trouble(cls: type[Client]) -> type[Client]:
    """Client 1 raises; client 2 sends NaN in all its vectors, or as its loss if it has none."""

    class Troubled(cls):  # type: ignore[misc, valid-type]
        def fit(self, parameters: list[Vector], config: dict[str, Any]) -> Fitted:
            if self.context.client == 1:
                raise RuntimeError("client 1 lost its disk")
            vectors, count, metrics = super().fit(parameters, config)
            if self.context.client == 2:
                vectors = [np.full_like(vector, np.nan) for vector in vectors]
                metrics = metrics if vectors else metrics | {"loss": float("nan")}
            return vectors, count, metrics

    return Troubled


@cache
def __getattr__(name: str) -> registry.Algorithm:
    """Look an algorithm up and trouble its clients."""
    name = name.replace("_", "-")
    if name not in registry.ALGORITHMS:
        raise AttributeError(name)
    algorithm = registry.find(name)
    return registry.Algorithm(algorithm.strategy, trouble(algorithm.client))
