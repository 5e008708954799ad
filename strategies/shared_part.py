"""What methods have in common whose clients share a part of their model and keep the rest.

The part is a vector of its own: chosen parameters, then chosen statistics. It moves by the mean of
the clients' changes, weighted by samples; what is private never reaches the server.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.vector import Vector, sample_weights, weighted_sum
from strategies.base import BaseStrategy, Round, RunInfo


class SharedPart(BaseStrategy):
    """Averages a part of the clients' models."""

    expects: ClassVar[tuple[str, ...]] = ("part",)
    shares_model: ClassVar[bool] = False

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.part: Vector = np.zeros(0, dtype=np.float32)

    @abstractmethod
    def shared(self) -> np.ndarray:
        """Return which of the parameters and statistics, end to end, clients share."""

    def broadcast(self) -> dict[str, Vector]:
        """Send the part, at first of the initial model."""
        return {"part": self._part()}

    def evaluation_broadcast(self) -> dict[str, Vector]:
        """Send the same: clients score it with what they keep."""
        return self.broadcast()

    def lengths(self) -> dict[str, int]:
        """Expect the change of the part."""
        return {"part": self._part().size}

    def aggregate(self, this_round: Round) -> Vector:
        """Move the part; the (unused) model stays."""
        weights = sample_weights(this_round.num_examples)
        this_round.per_client["weight"] = weights
        self.part = self._part() + weighted_sum(weights, this_round.arrays["part"])
        return this_round.model

    def kept_files(self) -> dict[str, dict[str, np.ndarray]]:
        """Keep the part, which is the server's result."""
        return {"shared-part": {"part": self._part()}}

    def state(self) -> dict[str, Any]:
        """Return the part."""
        return super().state() | {"part": self.part}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the part."""
        super().load_state(state)
        self.part = state["part"]

    def _part(self) -> Vector:
        if self.part.size:
            return self.part
        return np.concatenate([self.model, self.buffers])[self.shared()]
