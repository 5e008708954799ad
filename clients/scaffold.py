"""SCAFFOLD's client (Karimireddy et al., ICML 2020): a control variate that stays on its disk.

``w_i <- w_i - lr (g + coefficient (c - c_i))``. After training ``c_i`` becomes
``c_i - c + Delta_i/(K lr)``, or the mean of the round's gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from clients.base import Client, Received, Reply
from fedsuite.core.flat_model import to_numpy
from fedsuite.core.vector import Vector

if TYPE_CHECKING:
    from strategies.scaffold import ScaffoldParams


class ScaffoldClient(Client):
    """Sends the update; the change of ``c_i`` too where the server cannot derive it."""

    receives: ClassVar[tuple[str, ...]] = ("model", "control")
    sends: ClassVar[tuple[str, ...]] = ("update", "control_change")
    params: ScaffoldParams

    def outgoing(self) -> tuple[str, ...]:
        """With ``control = "update"`` nothing but the update travels."""
        return self.sends if self.params.control == "gradient" else ("update",)

    def train_round(self, received: Received) -> Reply:
        """Train with a correction that does not change within a round; renew ``c_i``."""
        control, own = received["control"], self._own(received.number("counted"))
        coefficient = np.float32(self.params.coefficient)
        self.corrects = coefficient != 0
        self.pull = self.tensor(coefficient * (control - own))
        self.total = torch.zeros_like(self.model.grads)
        reply = super().train_round(received)
        steps = reply.metrics["steps"]
        if self.params.control == "gradient":
            renewed = to_numpy(self.total) / np.float32(steps)
        else:
            update = self.as_sent(reply.vectors["update"])  # of which the server derives it
            renewed = next_control(own, control, update, steps, received.lr)
        when = np.array([self.context.round])
        self.context.state.update({"control": renewed, "before": own, "round": when})
        reply.vectors["control_change"] = renewed - own
        return reply

    def correct_gradient(self) -> None:
        """Add up the gradient as it is, then correct it."""
        if self.params.control == "gradient":
            self.total.add_(self.model.grads)
        if self.corrects:
            self.model.grads.add_(self.pull)

    def _own(self, counted: float) -> Vector:
        """Return ``c_i`` as the server knows it: zero at first, older if a reply was lost."""
        state = self.context.state.load()
        if "control" not in state:
            return np.zeros(self.model.size, dtype=np.float32)
        return state["control" if int(state["round"][0]) == counted else "before"]


def next_control(own: Vector, control: Vector, update: Vector, steps: float, lr: float) -> Vector:
    """Option II: ``c_i - c + Delta_i / (K lr)``, with ``Delta_i = -update``."""
    return own - control - update * np.float32(1.0 / (steps * lr))
