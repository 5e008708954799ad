"""FedDyn's client (Acar et al., ICLR 2021): a gradient ``g_i`` that stays on its disk.

Each step's gradient is ``g - g_i + alpha (w_i - w)``; after training ``g_i <- g_i - alpha v_i``,
unless the server has not heard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.base import Client, Received, Reply
from clients.proximal import ProximalPull
from fedsuite.core.vector import Vector

if TYPE_CHECKING:
    from strategies.feddyn import FedDynParams


class FedDynClient(Client):
    """Sends the update; keeps its gradient at the model it ended with."""

    params: FedDynParams

    def train_round(self, received: Received) -> Reply:
        """Train with the regulariser, then renew the gradient."""
        alpha, own = self.params.alpha, self._own(received.number("counted"))
        self.pull = ProximalPull(self, received["model"], alpha)
        self.pull.offset.sub_(self.tensor(own))
        reply = super().train_round(received)
        if alpha:
            renewed = own - np.float32(alpha) * self.as_sent(reply.vectors["update"])
            when = np.array([self.context.round])
            self.context.state.update({"gradient": renewed, "before": own, "round": when})
        return reply

    def correct_gradient(self) -> None:
        """Add ``alpha (w_i - w) - g_i``."""
        self.pull.add()

    def _own(self, counted: float) -> Vector:
        """Return ``g_i`` as the server knows it: zero at first, older if a reply was lost."""
        state = self.context.state.load()
        if "gradient" not in state:
            return np.zeros(self.model.size, dtype=np.float32)
        return state["gradient" if int(state["round"][0]) == counted else "before"]
