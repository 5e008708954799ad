"""FedTGP: Zhang, Liu, Hua, Cao, "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced
Contrastive Learning for Data and Model Heterogeneity in Federated Learning", AAAI 2024.

No weights travel. Client i sends the mean features ``P_i^c`` of each of its classes. The global
prototypes ``G^c`` come out of a small network over one trainable vector per class, and every round
the server trains both, to bring ``G^c`` near the ``P_i^c`` and keep the others away from them:
``-log exp(-d_c - m) / (exp(-d_c - m) + sum_{c' != c} exp(-d_c'))`` with ``d_k = |P_i^c - G^k|``.
The margin ``m`` is as large as the clients' classes are apart, up to a cap:
``min(max_{c, c'} |Q^c - Q^c'|, cap)`` with ``Q^c`` the mean of the round's ``P_i^c``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from fedsuite.core import seeds
from fedsuite.core.settings import setting
from fedsuite.core.vector import Doubles, Vector
from strategies.base import Round, RunInfo
from strategies.fedproto import FedProtoParams
from strategies.prototypes import SharedPrototypes, class_means

Layers = list[Doubles]


@dataclass(frozen=True)
class FedTgpParams(FedProtoParams):
    """Settings of FedTGP."""

    lam: float = setting(
        10.0, "weight of the distance of features from their class's prototype", low=0
    )
    margin: str = setting(
        "pairs",
        "margin: pairs = largest distance of two classes, nearest = to the nearest",
        choices=("pairs", "nearest"),
        needs="margin-cap",
    )
    margin_cap: float = setting(100.0, "upper bound of the margin", low=0)
    prototype_epochs: int = setting(
        100, "epochs of the server's training per round", low=1, high=1_000_000
    )
    prototype_batch: int = setting(10, "batch size of the server's training", low=1)
    prototype_lr: float = setting(0.01, "learning rate of the server's training", above=0)
    hidden: int = setting(
        0,
        "hidden width of the server's network; 0 = the number of features",
        low=0,
        high=100_000,
    )


class FedTgp(SharedPrototypes):
    """Trains one prototype per class."""

    Params = FedTgpParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.hidden = self.params.hidden or self.width
        draw = seeds.generator(info.seed, "prototypes")
        self.network = initial_network(self.classes, self.width, self.hidden, draw)
        self.known = np.zeros(self.classes, dtype=np.float32)

    def broadcast(self) -> dict[str, Vector]:
        """Send the prototypes, zeros for classes no client has sent, and which are known."""
        prototypes = generate(self._layers(self.network.astype(np.float64)))[1]
        prototypes[self.known == 0] = 0.0
        return {"prototypes": prototypes.astype(np.float32), "known": self.known}

    def aggregate(self, this_round: Round) -> Vector:
        """Train the prototypes on those of the round; the (unused) model stays."""
        held = this_round.arrays["counts"] > 0
        sent = this_round.arrays["prototypes"].reshape(len(held), self.classes, self.width)
        this_round.per_client["classes"] = held.sum(axis=1)
        if held.any():
            means, shown = class_means(sent, held)
            margin = adaptive_margin(means[shown], self.params.margin, self.params.margin_cap)
            self.known = np.maximum(self.known, shown).astype(np.float32)
            loss = self._train(sent[held].astype(np.float64), held.nonzero()[1], margin, this_round)
            this_round.scalars |= {"margin": margin, "prototype_loss": loss}
        this_round.scalars["known_classes"] = int(self.known.sum())
        return this_round.model

    def state(self) -> dict[str, Any]:
        """Return the network, and the classes that were ever shown."""
        return super().state() | {"network": self.network, "known": self.known}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        super().load_state(state)
        self.network, self.known = state["network"], state["known"]

    def _train(
        self, points: Doubles, labels: np.ndarray, margin: float, this_round: Round
    ) -> float:
        """Run the server's epochs; return the last one's loss per point."""
        network = self.network.astype(np.float64)
        layers, known = self._layers(network), self.known > 0
        draw = seeds.generator(self.info.seed, "prototypes", this_round.number)
        size, loss = self.params.prototype_batch, 0.0
        for _ in range(self.params.prototype_epochs):
            shuffled, loss = draw.permutation(len(points)), 0.0
            for rows in np.split(shuffled, range(size, len(points), size)):
                hidden, prototypes = generate(layers)
                part, slope = contrast(points[rows], labels[rows], prototypes, known, margin)
                descend(layers, hidden, slope, self.params.prototype_lr)
                loss += part * len(rows) / len(points)
        self.network = network.astype(np.float32)
        return loss

    def _layers(self, network: Doubles) -> Layers:
        return cut(network, shapes_of(self.classes, self.width, self.hidden))


def adaptive_margin(means: Doubles, rule: str, cap: float) -> float:
    """Return how far apart classes are, at most ``cap``; of a single class 0."""
    if len(means) < 2:
        return 0.0
    gaps = distances(means, means)
    if rule == "nearest":
        np.fill_diagonal(gaps, np.inf)
        gaps = gaps.min(axis=1)
    return min(float(gaps.max()), cap)


def distances(points: Doubles, centres: Doubles) -> Doubles:
    """Return the Euclidean distance of every point from every centre."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.sqrt(np.maximum(squares - 2.0 * (points @ centres.T), 0.0))


def contrast(
    points: Doubles, labels: np.ndarray, prototypes: Doubles, known: np.ndarray, margin: float
) -> tuple[float, Doubles]:
    """Return the mean contrastive loss over known classes and its gradient by the prototypes."""
    apart = distances(points, prototypes)
    own = np.eye(len(prototypes), dtype=bool)[labels]
    scores = np.where(known, -apart - margin * own, -np.inf)
    scores -= scores.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(scores).sum(axis=1))
    pull = (own - np.exp(scores - log_sums[:, None])) / len(points)
    pull = np.divide(pull, apart, out=np.zeros_like(pull), where=apart > 0)
    slope = pull.sum(axis=0)[:, None] * prototypes - pull.T @ points
    return float((log_sums - scores[own]).mean()), slope


def generate(layers: Layers) -> tuple[Doubles, Doubles]:
    """Return the hidden layer and the prototypes ``relu(E A + a) B + b``."""
    vectors, first, first_offset, second, second_offset = layers
    hidden = np.maximum(vectors @ first + first_offset, 0.0)
    return hidden, hidden @ second + second_offset


def descend(layers: Layers, hidden: Doubles, slope: Doubles, lr: float) -> None:
    """Move the network by ``-lr`` times its gradient, given the one by the prototypes.

    Written out, since autograd takes ten times as long for networks and batches this small.
    """
    vectors, first, _, second, _ = layers
    inner = (slope @ second.T) * (hidden > 0)
    gradients = inner @ first.T, vectors.T @ inner, inner.sum(0), hidden.T @ slope, slope.sum(0)
    for layer, gradient in zip(layers, gradients, strict=True):
        layer -= lr * gradient


def initial_network(classes: int, width: int, hidden: int, draw: np.random.Generator) -> Vector:
    """Draw vectors from N(0, 1), weights and offsets uniform within ``1/sqrt(inputs)``."""
    layers = [draw.standard_normal((classes, width))]
    for inputs, outputs in ((width, hidden), (hidden, width)):
        bound = 1.0 / sqrt(inputs)
        layers += [draw.uniform(-bound, bound, shape) for shape in ((inputs, outputs), outputs)]
    return np.concatenate([layer.ravel() for layer in layers]).astype(np.float32)


def shapes_of(classes: int, width: int, hidden: int) -> list[tuple[int, ...]]:
    """Return the shapes of the network's layers."""
    return [(classes, width), (width, hidden), (hidden,), (hidden, width), (width,)]


def cut(flat: Doubles, shapes: list[tuple[int, ...]]) -> Layers:
    """View a flat vector as arrays of the given shapes."""
    parts = np.split(flat, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
