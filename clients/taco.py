"""TACO's client (Liu et al.): one more vector added to each gradient, Eq. 8."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from clients.base import Client
from fedsuite.core.vector import Vector


class TacoClient(Client):
    """``w_i <- w_i - lr (g + gamma (1 - alpha_i) Delta)``."""

    receives: ClassVar[tuple[str, ...]] = ("model", "global_gradient")

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train with the correction, which does not change within a round."""
        gamma = config["gamma"] or 1.0 / self.num_steps
        factor = gamma * (1.0 - config["alpha"]) if config["correction"] else 0.0
        self.corrects = factor != 0.0
        self.pull = torch.tensor(parameters[1], device=self.model.device).mul_(factor)
        return super().fit(parameters, config)

    def correct_gradient(self) -> None:
        """Add the tailored part of the global gradient."""
        if self.corrects:
            self.model.grads.add_(self.pull)
