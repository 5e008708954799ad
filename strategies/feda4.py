"""FedA4: Zhao, Hu, Yang, Wu, "FedA4: Federated Learning with Anti-Bias Aggregation and
Trajectory-Based Adaptation", Transactions on Artificial Intelligence 2(1), 2026.

Phase I aggregates with weights from the entropy of each client's predictions on a probe set
(Eqs. 2-3); phase II moves the result along the clients' trajectories, forward for reliable clients
and back for biased ones (Algorithm 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Matrix, Vector, cosines, mean_row, sample_weights, weighted_sum
from strategies.base import BaseStrategy, Round


@dataclass(frozen=True)
class FedA4Params:
    """Settings of FedA4."""

    weights: bool = setting(True, "anti-bias aggregation weights (Eq. 3); false = by samples")
    adaptation: bool = setting(True, "trajectory-based adaptation (phase II)")
    trajectory: str = setting(
        "full",
        "full = send the change of every epoch, compact = their sum only",
        choices=("full", "compact"),
    )
    direction: str = setting(
        "intent",
        "intent = reliable clients forward, printed = the signs as printed",
        choices=("intent", "printed"),
        needs=("adaptation=true", "eta"),
    )
    beta: float = setting(1.0, "strength of the accuracy penalty", low=0, needs="adaptation=true")
    eta: float = setting(0.01, "step size of the adaptation", low=0, needs="adaptation=true")
    theta: float = setting(
        0.9,
        "weight of the mean trajectory in each client's",
        low=0,
        high=1,
        needs=("adaptation=true", "eta"),
    )
    tau_conc: float = setting(
        0.3,
        "a client is biased from this concentration on",
        low=0,
        needs="adaptation=true",
    )
    tau_sim: float = setting(
        0.2,
        "a client is biased up to this similarity",
        low=-1,
        high=1,
        needs="adaptation=true",
    )


class FedA4(BaseStrategy):
    """Anti-bias aggregation, then adaptation along aligned trajectories."""

    Params = FedA4Params
    expects: ClassVar[tuple[str, ...]] = ("update", "trajectory")
    needs_probe: ClassVar[bool] = True

    def lengths(self) -> dict[str, int]:
        """A full trajectory is one vector per local epoch, end to end."""
        size = self.model.size
        if self.params.trajectory == "compact":
            return {"update": size}
        return {"update": size, "trajectory": size * self.info.local_epochs}

    def aggregate(self, this_round: Round) -> Vector:
        """Phase I, then phase II."""
        weights = sample_weights(this_round.num_examples)
        if not (self.params.weights or self.params.adaptation):
            return self.step(this_round, weights)
        phi, accuracy = self._probe(this_round)
        if self.params.weights:
            weights = anti_bias_weights(phi)
        model = self.step(this_round, weights)
        if not self.params.adaptation:
            return model
        return model + self._adaptation(this_round, weights, phi, accuracy)

    def _adaptation(
        self, this_round: Round, weights: np.ndarray, phi: np.ndarray, accuracy: np.ndarray
    ) -> Vector:
        trajectories = self._mean_trajectories(this_round)
        mean = mean_row(trajectories).astype(np.float32)
        similarity = cosines(trajectories, mean)
        biased = (phi >= self.params.tau_conc) | (similarity <= self.params.tau_sim)
        penalty = bias_penalty(accuracy, self.params.beta)
        signs = direction(biased, printed=self.params.direction == "printed")
        this_round.per_client |= {"penalty": penalty, "similarity": similarity, "biased": biased}
        aligned = align(trajectories, mean, self.params.theta, out=trajectories)
        return np.float32(self.params.eta) * weighted_sum(weights * penalty * signs, aligned)

    def _probe(self, this_round: Round) -> tuple[np.ndarray, np.ndarray]:
        """Score each client's model on the probe set."""
        assert self.info.probe is not None, "FedA4 needs a probe set"
        scores = [
            self.info.probe(this_round.model + update, buffers)
            for update, buffers in zip(this_round.updates, this_round.buffers, strict=True)
        ]
        probabilities = np.array([mean for mean, _ in scores])
        sound = np.isfinite(probabilities).all(axis=1)
        probabilities[~sound] = np.eye(probabilities.shape[1])[0]
        phi = concentration(probabilities)
        accuracy = np.where(sound, [right for _, right in scores], 0.0)
        this_round.per_client |= {"phi": phi, "probe_accuracy": accuracy}
        return phi, accuracy

    def _mean_trajectories(self, this_round: Round) -> Matrix:
        """Return ``g_i``; the changes over epochs add up to the update."""
        epochs, means = self.info.local_epochs, this_round.zeros(this_round.updates.shape)
        if self.params.trajectory == "compact":
            return np.divide(this_round.updates, np.float32(epochs), out=means)
        paths = this_round.arrays["trajectory"].reshape(len(this_round.clients), epochs, -1)
        lengths, turns = path_statistics(paths)
        this_round.per_client |= {"path_length": lengths, "turning": turns}
        for mean, path in zip(means, paths, strict=True):
            path.mean(axis=0, out=mean)
        return means


def concentration(mean_probs: np.ndarray) -> np.ndarray:
    """Eq. 2: ``1 - H(p) / log C`` per row, ``0 log 0 = 0``."""
    probs = np.asarray(mean_probs, dtype=np.float64)
    logs = np.log(probs, out=np.zeros_like(probs), where=probs > 0)
    entropy = -(probs * logs).sum(axis=1)
    return np.clip(1.0 - entropy / np.log(probs.shape[1]), 0.0, 1.0)


def anti_bias_weights(phi: np.ndarray) -> np.ndarray:
    """Eq. 3: ``(1 - phi_i) / sum_j (1 - phi_j)``; all ``phi = 1``: uniform."""
    trust = 1.0 - np.asarray(phi, dtype=np.float64)
    return trust / trust.sum() if trust.sum() > 0 else np.full(len(trust), 1.0 / len(trust))


def bias_penalty(accuracy: np.ndarray, beta: float) -> np.ndarray:
    """Algorithm 2, line 16: ``exp(-beta (acc_i - mean acc)^2)``."""
    accuracy = np.asarray(accuracy, dtype=np.float64)
    return np.exp(-beta * (accuracy - accuracy.mean()) ** 2)


def align(trajectories: Matrix, mean: Vector, theta: float, out: Matrix | None = None) -> Matrix:
    """Line 17: ``g'_i = (1 - theta) g_i + theta gbar``."""
    aligned = np.multiply(np.float32(1.0 - theta), trajectories, out=out)
    aligned += np.float32(theta) * mean
    return aligned


def direction(biased: np.ndarray, printed: bool = False) -> np.ndarray:
    """Lines 18-20: reliable clients forward, biased ones back; the printed signs are reversed."""
    signs = np.where(biased, -1.0, 1.0)
    return -signs if printed else signs


def path_statistics(paths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each path's length, and the mean cosine of its successive steps (1 if one step)."""
    steps = [np.linalg.norm(path.astype(np.float64), axis=1).sum() for path in paths]
    turns = [
        np.mean([cosines(path[k : k + 1], path[k + 1])[0] for k in range(len(path) - 1)] or [1.0])
        for path in paths
    ]
    return np.array(steps), np.array(turns)
