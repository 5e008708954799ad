"""TACO: Liu, Zhan, Joe-Wong, Ngai, Duan, Guo, Chen, Zhang, "TACO: Tackling Over-correction in
Federated Learning with Tailored Adaptive Correction".

``Delta_i = w - w_i``; coefficients ``alpha_i`` by Eq. 7, global gradient ``Delta`` by Eq. 9,
freeloaders by Eq. 10, output ``w``, or ``z`` by Eq. 15. The client's step is Eq. 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.messages import Instruction
from fedsuite.core.settings import setting
from fedsuite.core.vector import (
    Matrix,
    Vector,
    cosines,
    mean_row,
    norms,
    sample_weights,
    weighted_sum,
)
from strategies.base import BaseStrategy, Round, RunInfo

FIRST_ALPHA = 0.1
# How much nearer to a replay than the median client a client must be, by angle (1 - cosine) or by
# distance. No fixed cosine will do: on adult those of honest clients reach 0.9997. By angle even a
# scaled replay is found; by distance also one with noise of a tenth of its norm, which in some
# rounds of adult is further off by angle than honest clients are.
NEARER_BY_ANGLE, NEARER_BY_DISTANCE = 0.05, 0.25


@dataclass(frozen=True)
class TacoParams:
    """Settings of TACO."""

    gamma: float = setting(
        0.0, "maximum correction; 0 = 1/K with K local steps", low=0, needs="correction=true"
    )
    correction: bool = setting(True, "tailored correction of local steps (Eq. 8)")
    aggregation: bool = setting(True, "tailored aggregation (Eq. 9)")
    gradient_units: str = setting(
        "round",
        "units of the global gradient: sum per round, or mean per step",
        choices=("round", "step"),
        needs="correction=true",
    )
    output: str = setting(
        "w",
        "result: w = last model, z = extrapolated (Eq. 15)",
        choices=("w", "z"),
        needs="correction=true",
    )
    detector: str = setting(
        "guarded",
        "strikes: guarded = Eq. 10 and a replayed gradient, printed = Eq. 10 alone",
        choices=("guarded", "printed"),
        needs="correction=true or aggregation=true",
    )
    kappa: float = setting(
        0.6,
        "a client is suspicious from this coefficient on",
        above=0,
        needs="correction=true or aggregation=true",
    )
    lambda_: int = setting(
        0,
        "strikes until a client is expelled; 0 = rounds/5",
        low=0,
        needs="correction=true or aggregation=true",
    )
    replay: float = setting(
        0.9,
        "detector=guarded: least cosine with the gradient it was sent",
        low=-1,
        high=1,
        needs=("detector=guarded", "correction=true or aggregation=true"),
    )


class Taco(BaseStrategy):
    """Tailored correction coefficients, tailored aggregation, freeloader ejection."""

    Params = TacoParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.alpha = np.full(info.num_clients, FIRST_ALPHA)
        self.strikes = np.zeros(info.num_clients, dtype=np.int64)
        self.gradient: Vector = np.zeros(0, dtype=np.float32)
        self.previous: Vector = np.zeros(0, dtype=np.float32)
        self.momentum_unit = 1.0

    @classmethod
    def misfit(cls, params: Any, has_statistics: bool, plain_steps: bool = True) -> str:
        """Refuse ``z`` for a model with statistics, which belong to ``w`` alone."""
        if params.output == "w" or not has_statistics:
            return ""
        return (
            "invalid value 'z' for taco.output: this model has batch-norm statistics, which are "
            "those of w; the extrapolated z has none. Use taco.output=w, or another model."
        )

    def broadcast(self) -> dict[str, Vector]:
        """Send the global gradient, zero in the first round."""
        return {"global_gradient": self._gradient()}

    def instruction(self, client: int) -> Instruction:
        """Send a client its coefficient."""
        return Instruction(config={"alpha": float(self.alpha[client])})

    def aggregate(self, this_round: Round) -> Vector:
        """Eqs. 7, 9 and 10; signs cancel, so updates ``-Delta_i`` serve as they are."""
        lengths = norms(this_round.updates)
        cosine = cosines(this_round.updates, mean_row(this_round.updates), lengths)
        alpha = coefficients(lengths, cosine)
        self._judge(this_round, alpha, lengths, cosine)
        self.alpha[this_round.clients] = alpha
        kept = np.array([client not in self.expelled for client in this_round.clients])
        if self.params.aggregation:
            weights = normalised(np.where(kept, alpha, 0.0), kept)
        else:
            weights = sample_weights(np.where(kept, this_round.num_examples, 0.0))
        steps = np.maximum(this_round.num_steps, 1.0)
        mean_steps = float(steps[kept].mean())
        scale = steps if self.params.aggregation else np.full_like(steps, mean_steps)
        gradient = -tailored_aggregate(this_round.updates, weights, scale, this_round.lr)
        in_round_units = self.params.gradient_units == "round"
        self.gradient = gradient * np.float32(mean_steps if in_round_units else 1.0)
        self.momentum_unit = self._momentum_unit(mean_steps)
        self.previous = this_round.model
        this_round.scalars["mean_alpha"] = float(alpha.mean())
        return self.step(this_round, weights * (mean_steps / scale))

    def other_outputs(self) -> dict[str, Vector]:
        """Return ``z`` where ``w`` is the result, and the reverse; nothing where they are one."""
        if not self.params.correction or self.buffers.size:
            return {}
        return {"w": self.model} if self.params.output == "z" else {"z": self.extrapolated()}

    def result(self) -> Vector:
        """Return ``w``, or ``z`` if asked."""
        return self.extrapolated() if self.params.output == "z" else self.model

    def state(self) -> dict[str, Any]:
        """Return coefficients, strikes, the global gradient and the model before."""
        return super().state() | {
            "alpha": self.alpha,
            "strikes": self.strikes,
            "gradient": self.gradient,
            "previous": self.previous,
            "momentum_unit": self.momentum_unit,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the whole state."""
        super().load_state(state)
        self.alpha, self.strikes = state["alpha"].copy(), state["strikes"].copy()
        self.gradient, self.previous = state["gradient"], state["previous"]
        self.momentum_unit = state["momentum_unit"]

    def _gradient(self) -> Vector:
        return self.gradient if self.gradient.size else np.zeros_like(self.model)

    def _judge(
        self, this_round: Round, alpha: np.ndarray, lengths: np.ndarray, cosine: np.ndarray
    ) -> None:
        """Count strikes (Eq. 10) and expel, never below ``min-train-clients``.

        Without both of its ideas the method is FedAvg, which expels nobody.
        """
        replay = -cosines(this_round.updates, self._gradient(), lengths)
        last_change = this_round.model - self.previous if self.previous.size else self.previous
        distance = replay_distance(replay, lengths, norms(last_change[None])[0])
        suspicious = alpha >= self.params.kappa
        suspicious &= self.params.correction or self.params.aggregation
        if self.params.detector == "guarded":
            suspicious &= is_replay(replay, distance, self.params.replay)
        self.strikes[this_round.clients] += suspicious
        limit = self.params.lambda_ or math.ceil(self.info.num_rounds / 5)
        guilty = [
            client
            for client, bad in zip(this_round.clients, suspicious, strict=True)
            if bad and self.strikes[client] >= limit
        ]
        present = self.info.num_clients - len(self.expelled)
        self.expelled |= set(guilty[: max(present - self.info.min_train_clients, 0)])
        if self.expelled.issuperset(this_round.clients):
            self.expelled.discard(this_round.clients[0])
        this_round.per_client |= {
            "alpha": alpha,
            "norm": lengths,
            "cosine": cosine,
            "replay": replay,
            "replay_distance": distance,
            "strikes": self.strikes[this_round.clients],
        }

    def _momentum_unit(self, mean_steps: float) -> float:
        """Return how much of the last global step the correction adds up to in a round."""
        gamma = self.params.gamma or 1.0 / mean_steps
        return gamma * mean_steps if self.params.gradient_units == "round" else gamma

    def extrapolated(self) -> Vector:
        """Return ``z``; without a correction, or before the first round, it is ``w``."""
        if not self.params.correction or not self.previous.size:
            return self.model
        present = [c for c in range(self.info.num_clients) if c not in self.expelled]
        factor = self.momentum_unit * (1.0 - float(self.alpha[present].mean()))
        return extrapolate(self.model, self.previous, factor)


def correction_coefficients(deltas: Matrix) -> np.ndarray:
    """Eq. 7: ``(1 - |D_i| / sum_j |D_j|) * max(cos(D_i, mean_j D_j), 0)``."""
    lengths = norms(deltas)
    return coefficients(lengths, cosines(deltas, mean_row(deltas), lengths))


def coefficients(lengths: np.ndarray, cosine: np.ndarray) -> np.ndarray:
    """Eq. 7 by ``|D_i|`` and ``cos(D_i, mean_j D_j)``."""
    total = lengths.sum()
    shares = lengths / total if total > 0 else np.zeros_like(lengths)
    return (1.0 - shares) * np.maximum(cosine, 0.0)


def is_replay(replay: np.ndarray, distance: np.ndarray, least: float) -> np.ndarray:
    """Return who sent back what it was sent, by its cosine ``r_i`` with that and its distance.

    ``r_i >= least``, and ``1 - r_i <= 0.05 median_j (1 - r_j)`` or ``d_i <= 0.25 median_j d_j``,
    over the round's participants ``j``, of whom more than half must be honest.
    """
    angle = 1.0 - replay
    near = angle <= NEARER_BY_ANGLE * np.median(angle)
    near |= distance <= NEARER_BY_DISTANCE * np.median(distance)
    return (replay >= least) & near


def replay_distance(cosine: np.ndarray, lengths: np.ndarray, length: float) -> np.ndarray:
    """Return ``|v_i - r| / |r|`` by the law of cosines; 1 where there is nothing to replay."""
    if not length > 0:
        return np.ones(len(lengths))
    ratio = lengths / length
    return np.sqrt(np.maximum(1.0 + ratio * (ratio - 2.0 * cosine), 0.0))


def tailored_aggregate(
    deltas: Matrix, alpha: np.ndarray, num_steps: np.ndarray | float, lr: float
) -> Vector:
    """Eq. 9: ``sum_i alpha_i D_i / (K lr sum_j alpha_j)``; all zero: the plain mean."""
    weights = normalised(np.asarray(alpha, dtype=np.float64), np.ones(len(deltas), dtype=bool))
    return weighted_sum(weights / (np.asarray(num_steps, dtype=np.float64) * lr), deltas)


def extrapolate(model: Vector, previous: Vector, factor: float) -> Vector:
    """Eq. 15: ``z = w_T + factor (w_T - w_{T-1})``."""
    return model + np.float32(factor) * (model - previous)


def normalised(weights: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Scale weights to sum 1; where all are zero, those kept weigh the same."""
    weights = weights if weights.sum() > 0 else kept.astype(np.float64)
    return weights / weights.sum()
