"""Local: every client trains alone and sends nothing, the baseline of personalised methods."""

from __future__ import annotations

from typing import ClassVar

from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round


class Local(BaseStrategy):
    """A server that aggregates nothing."""

    expects: ClassVar[tuple[str, ...]] = ()
    shares_model: ClassVar[bool] = False

    def aggregate(self, this_round: Round) -> Vector:
        """Return the model unchanged."""
        return this_round.model
