"""Local: every client trains alone. Nothing travels; the floor under every personal table."""

from __future__ import annotations

from typing import ClassVar

from fedsuite.core.vector import Vector
from strategies.base import BaseStrategy, Round


class Local(BaseStrategy):
    """A server that only keeps time."""

    expects: ClassVar[tuple[str, ...]] = ()
    shares_model: ClassVar[bool] = False

    def aggregate(self, this_round: Round) -> Vector:
        """Leave the model alone."""
        return this_round.model
