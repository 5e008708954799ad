"""SCAFFOLD's client (Karimireddy et al., ICML 2020): a control variate that stays on its disk.

``w_i <- w_i - lr (g + coefficient (c - c_i))``. After training ``c_i`` becomes
``c_i - c + Delta_i/(K lr)``, or the mean of the round's gradients.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from clients.base import Client
from fedsuite.core.vector import Vector, to_numpy


class ScaffoldClient(Client):
    """Sends the update; the change of ``c_i`` too where the server cannot derive it."""

    receives: ClassVar[tuple[str, ...]] = ("model", "control")
    sends: ClassVar[tuple[str, ...]] = ("update", "control_change")

    def outgoing(self, config: dict[str, Any]) -> tuple[str, ...]:
        """With ``control = "update"`` nothing but the update travels."""
        return self.sends if config["control"] == "gradient" else ("update",)

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train with a correction that does not change within a round; renew ``c_i``."""
        control, own = parameters[1], self._own(config["counted"])
        coefficient = np.float32(config["coefficient"])
        self.corrects = coefficient != 0
        self.pull = torch.tensor(coefficient * (control - own), device=self.model.device)
        self.sums = config["control"] == "gradient"
        self.total = torch.zeros_like(self.model.grads)
        (update,), count, metrics = super().fit(parameters, config)
        if self.sums:
            renewed = to_numpy(self.total) / np.float32(metrics["steps"])
        else:
            renewed = next_control(own, control, update, metrics["steps"], config["lr"])
        when = np.array([self.context.round])
        self.context.state.update({"control": renewed, "before": own, "round": when})
        return [update, renewed - own][: len(self.outgoing(config))], count, metrics

    def correct_gradient(self) -> None:
        """Add up the gradient as it is, then correct it."""
        if self.sums:
            self.total.add_(self.model.grads)
        if self.corrects:
            self.model.grads.add_(self.pull)

    def _own(self, counted: int) -> Vector:
        """Return ``c_i`` as the server knows it: zero at first, older if a reply was lost."""
        state = self.context.state.load()
        if "control" not in state:
            return np.zeros(self.model.size, dtype=np.float32)
        return state["control" if int(state["round"][0]) == counted else "before"]


def next_control(own: Vector, control: Vector, update: Vector, steps: float, lr: float) -> Vector:
    """Option II: ``c_i - c + Delta_i / (K lr)``, with ``Delta_i = -update``."""
    return own - control - update * np.float32(1.0 / (steps * lr))
