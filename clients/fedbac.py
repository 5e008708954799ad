"""FedBaC's client: training aligned with the server's momentum, and a history of their cosines.

``regularizer = "update"`` is section 3.4, the cosine of the update so far, with its gradient in
closed form; ``"gradient"`` is Algorithm 1, the cosine of the step, by double backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from clients.base import Client, Received, Reply
from fedsuite.core.consensus import consensus, empty_history, recent, reliability, remember
from fedsuite.core.vector import Doubles, Vector, cosines
from tasks.evaluation import evaluate

if TYPE_CHECKING:
    from strategies.fedbac import FedBacParams

EPSILON = 1e-12


class FedBacClient(Client):
    """Sends the update with its consensus and reliability; remembers its cosines."""

    receives: ClassVar[tuple[str, ...]] = ("model", "momentum")
    params: FedBacParams

    def inspect(self, received: Received) -> dict[str, float]:
        """Score the received model on the own test rows, or on the training rows if none."""
        if not self.params.score_clients:
            return {"accuracy": 0.0}
        rows = self.context.test_rows if len(self.context.test_rows) else self.context.train_rows
        self.model.load(received["model"])
        return {"accuracy": evaluate(self.model, self.context.task, rows).accuracy}

    def train_round(self, received: Received) -> Reply:
        """Train, held along the momentum if that is on."""
        self.start, self.unit = self.tensor(received["model"]), self.tensor(received["momentum"])
        length = self.unit.norm()
        active = bool(length > 0) and self.params.lam > 0
        if length > 0:
            self.unit /= length
        self.regularizer = self.params.regularizer if active else "none"
        self.sign = 1.0 if self.params.printed_sign else -1.0
        return super().train_round(received)

    def describe(self, update: Vector, received: Received) -> dict[str, float]:
        """Compare an update with the momentum, now and over the last rounds that counted."""
        momentum, params, now = received["momentum"], self.params, self.context.round
        cosine = float(cosines(update[None], momentum)[0])
        before = history = self._history(received.number("counted"))
        agreement = 0.0
        if momentum.any() and np.isfinite(cosine):
            history = remember(before, now, cosine)
            agreement = float(consensus(np.array(cosine), params.gamma, params.floor))
        self.context.state.update({"cosines": history, "before": before, "round": np.array([now])})
        steady = recent(history, now, params.history, params.window)
        return {
            "cosine": cosine,
            "consensus": agreement,
            "reliability": reliability(steady, params.alpha),
        }

    def _history(self, counted: float) -> Doubles:
        """Return the cosines of rounds that the server counted; a lost reply did not count."""
        state = self.context.state.load()
        if "cosines" not in state:
            return empty_history(self.params.history)
        return state["cosines" if int(state["round"][0]) == counted else "before"]

    def correct_gradient(self) -> None:
        """Add the gradient of ``lam (1 - cos(w_local - w, vbar))``."""
        if self.regularizer == "update":
            update = self.model.weights - self.start
            self.model.grads.add_(cosine_gradient(update, self.unit), alpha=-self.params.lam)

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """For Algorithm 1, differentiate through the gradient; otherwise as usual."""
        if self.regularizer != "gradient":
            return super().gradients(x, y)
        parameters = list(self.model.module.parameters())
        loss = self.loss(x, y)
        task = flat(torch.autograd.grad(loss, parameters, create_graph=True))
        agreement = self.sign * (task / (task.norm() + EPSILON)) @ self.unit
        penalty = flat(torch.autograd.grad(self.params.lam * (1.0 - agreement), parameters))
        self.model.grads.copy_(task.detach() + penalty)
        return loss.detach()


def cosine_gradient(update: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ``cos(u, v)`` by ``u`` for a unit ``v``; zero at ``u = 0``."""
    length = update.norm()
    if length == 0:
        return torch.zeros_like(update)
    cosine = (update @ unit) / length
    return (unit - update * (cosine / length)) / length


def flat(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Lay tensors end to end, as the flat model does."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
