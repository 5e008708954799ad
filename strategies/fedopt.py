"""FedAdam, FedYogi and FedAdagrad: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan,
"Adaptive Federated Optimization", ICLR 2021, Algorithm 2.

With ``D = sum_i p_i v_i``: ``m <- beta1 m + (1 - beta1) D``, then ``s`` from ``D^2``, and
``w <- w + server_lr eta m / (sqrt(s) + tau)``; ``m`` starts at 0 and ``s`` at ``tau^2``. As the
paper's Adagrad has no momentum, ``beta1`` is 0 there by default.

- FedAdam: ``s <- beta2 s + (1 - beta2) D^2``
- FedYogi: ``s <- s - (1 - beta2) D^2 sign(s - D^2)``
- FedAdagrad: ``s <- s + D^2``
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector, sample_weights
from strategies.base import BaseStrategy, Round, RunInfo


@dataclass(frozen=True)
class FedAdagradParams:
    """Settings of FedAdagrad."""

    eta: float = setting(0.1, "server learning rate; server-lr multiplies it", above=0)
    beta1: float = setting(0.0, "decay of the mean update", low=0, high=0.9999)
    tau: float = setting(0.001, "added to the divisor: the larger, the less adaptive", above=0)


@dataclass(frozen=True)
class FedYogiParams(FedAdagradParams):
    """Settings of FedYogi."""

    beta1: float = setting(0.9, "decay of the mean update", low=0, high=0.9999)
    beta2: float = setting(0.99, "decay of the mean square", low=0, high=0.9999)


@dataclass(frozen=True)
class FedAdamParams(FedYogiParams):
    """Settings of FedAdam."""

    bias_correction: bool = setting(
        False,
        "start the mean square at 0 and divide both means by 1 - beta^t, as Adam does and the "
        "paper does not",
    )


class AdaptiveServer(BaseStrategy):
    """A step per coordinate, by the size that its mean updates have had so far."""

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.mean: Vector = np.zeros(0, dtype=np.float32)
        self.square: Vector = np.zeros(0, dtype=np.float32)
        self.steps = 0

    @abstractmethod
    def next_square(self, square: Vector, change: Vector) -> Vector:
        """Return ``s`` after a mean update."""

    def first_square(self) -> float:
        """Return what ``s`` starts at."""
        return float(self.params.tau**2)

    def aggregate(self, this_round: Round) -> Vector:
        """Move by the mean update over its usual size."""
        change = self.combine(this_round, sample_weights(this_round.num_examples))
        if not self.mean.size:
            self.mean = np.zeros_like(change)
            self.square = np.full_like(change, self.first_square())
        self.steps += 1
        self.mean = decayed(self.mean, change, self.params.beta1)
        self.square = self.next_square(self.square, change)
        return self.advance(this_round, self.move())

    def move(self) -> Vector:
        """Return ``eta m / (sqrt(s) + tau)``."""
        return adaptive_step(self.mean, self.square, self.params.eta, self.params.tau)

    def state(self) -> dict[str, Any]:
        """Return both means, and after how many steps."""
        moments = {"mean": self.mean, "square": self.square, "steps": self.steps}
        return super().state() | moments

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        super().load_state(state)
        self.mean, self.square = state["mean"], state["square"]
        self.steps = int(state["steps"])


class FedAdam(AdaptiveServer):
    """The mean square fades."""

    Params = FedAdamParams

    def next_square(self, square: Vector, change: Vector) -> Vector:
        """Return ``beta2 s + (1 - beta2) D^2``."""
        return decayed(square, change * change, self.params.beta2)

    def first_square(self) -> float:
        """Return 0 if the bias is corrected, which is that of a mean which began there."""
        return 0.0 if self.params.bias_correction else super().first_square()

    def move(self) -> Vector:
        """Correct the bias of both means, if asked to."""
        if not self.params.bias_correction:
            return super().move()
        mean = self.mean / np.float32(1.0 - self.params.beta1**self.steps)
        square = self.square / np.float32(1.0 - self.params.beta2**self.steps)
        return adaptive_step(mean, square, self.params.eta, self.params.tau)


class FedYogi(AdaptiveServer):
    """The mean square follows by steps that do not depend on how far off it is."""

    Params = FedYogiParams

    def next_square(self, square: Vector, change: Vector) -> Vector:
        """Return ``s - (1 - beta2) D^2 sign(s - D^2)``."""
        squared = change * change
        share = np.float32(1.0 - self.params.beta2)
        return square - share * squared * np.sign(square - squared)


class FedAdagrad(AdaptiveServer):
    """The square grows, so that steps become smaller."""

    Params = FedAdagradParams

    def next_square(self, square: Vector, change: Vector) -> Vector:
        """Return ``s + D^2``."""
        return square + change * change


def decayed(mean: Vector, value: Vector, beta: float) -> Vector:
    """Return ``beta mean + (1 - beta) value``."""
    return np.float32(beta) * mean + np.float32(1.0 - beta) * value


def adaptive_step(mean: Vector, square: Vector, eta: float, tau: float) -> Vector:
    """Return ``eta m / (sqrt(s) + tau)``."""
    step: Vector = np.divide(np.float32(eta) * mean, np.sqrt(square) + np.float32(tau))
    return step
