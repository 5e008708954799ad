"""FedProto's client (Tan et al., AAAI 2022): its own model, held to shared class prototypes.

It minimises ``CE + lam MSE(f(x), G^y)``, where ``f(x)`` are the features that enter the last linear
layer and ``G^y`` the global prototype of the row's class, and it predicts the class of the nearest
prototype. Its model never leaves its disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clients.base import Evaluation, Received, Reply
from clients.local import LocalClient
from fedsuite.core.flat_model import to_numpy
from fedsuite.core.vector import last_layer
from tasks.architectures import with_features, without_head
from tasks.evaluation import BATCH, ScoredBatch, score_batches

if TYPE_CHECKING:
    from strategies.fedproto import FedProtoParams


class FedProtoClient(LocalClient):
    """Sends the mean features of each class it has, and how many rows they stand for."""

    receives: ClassVar[tuple[str, ...]] = ("prototypes", "known")
    scores_with: ClassVar[tuple[str, ...]] = ("prototypes", "known")
    scores_own: ClassVar[bool] = False
    sends: ClassVar[tuple[str, ...]] = ("prototypes", "counts")
    params: FedProtoParams

    def train_round(self, received: Received) -> Reply:
        """Train the own model and keep it; send the mean features of its classes."""
        self._load_prototypes(received)
        reply = super().train_round(received)
        rows = self.context.train_rows
        features = np.concatenate([found.cpu().numpy() for _, found, _ in self._forward(rows)])
        means, counts = class_means(features, self.context.task.labels(rows), len(self.known))
        reply.vectors |= {"prototypes": means.ravel(), "counts": counts}
        return reply

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the pull towards the prototypes; classes without one do not pull."""
        logits, features = with_features(self.model.module, x)
        loss = F.cross_entropy(logits, y)
        if not self.params.lam:
            return loss
        return loss + self.params.lam * pull(features, self.prototypes[y], self.known[y])

    @property
    def stackable(self) -> bool:
        """Without the pull the loss is the usual one."""
        return not self.params.lam

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the nearest prototype on the own test rows, and the classifier beside it."""
        self._load_prototypes(received)
        self._load_own(after_round=True)
        rows, known, batches, head = self.context.test_rows, bool(self.known.any()), [], 0
        if not len(rows):
            return 0.0, 0, {"correct": 0, "head-correct": 0}
        for logits, features, y in self._forward(rows):
            near = nearness(features, self.prototypes, self.known) if known else logits
            batches.append(ScoredBatch.of(logits, y, near))
            head += int((logits.argmax(1) == y).sum())
        score = score_batches(batches, self.context.task.shape.num_classes)
        return score.loss, score.total, score.to_send() | {"head-correct": head}

    def beside_model(self) -> dict[str, np.ndarray]:
        """Return the prototypes, a row per class, and 1 for each class that has one."""
        return {
            "prototypes": to_numpy(self.prototypes),
            "known": to_numpy(self.known.to(torch.float32)),
        }

    @staticmethod
    def predictor(module: nn.Module, beside: Mapping[str, Tensor]) -> nn.Module:
        """Return what predicts by prototypes, or the model alone where no class has one."""
        known = beside["known"] > 0
        return NearestPrototype(module, beside["prototypes"], known) if known.any() else module

    def length(self, name: str) -> int:
        """Return the length of the prototypes (classes times features) or of the counts."""
        shapes = self.model.shapes
        classes, width = shapes[next(iter(last_layer(shapes)))]
        return classes * width if name == "prototypes" else classes

    def _load_prototypes(self, received: Received) -> None:
        self.prototypes = self.tensor(received["prototypes"])
        self.known = self.tensor(received["known"]) > 0

    @torch.inference_mode()
    def _forward(self, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield logits, features and labels of some rows, in evaluation mode."""
        self.model.module.eval()
        for start in range(0, len(rows), BATCH):
            x, y = self.context.task.rows(rows[start : start + BATCH])
            logits, features = with_features(self.model.module, x.to(self.model.device))
            yield logits, features, y.to(self.model.device)


class NearestPrototype(nn.Module):
    """Gives minus the squared distances to the prototypes for logits: the nearest is the largest.

    The method names a class and no probabilities; a softmax of these is usual for prototypes.
    """

    prototypes: Tensor
    known: Tensor

    def __init__(self, module: nn.Module, prototypes: Tensor, known: Tensor) -> None:
        super().__init__()
        self.features = without_head(module)
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("known", known)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs to minus the squared distances, infinite where a class has no prototype."""
        gaps = self.features(x).double()[:, None] - self.prototypes.double()
        return (-gaps.square().sum(2)).masked_fill(~self.known, -torch.inf)


def pull(features: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """Return the mean square of ``features - targets``, zero in rows without a target."""
    return ((features - targets) * known[:, None]).square().mean()


def nearness(features: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """Return minus each row's distances to the prototypes, minus infinity to one not known."""
    mode = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(features.double(), prototypes.double(), compute_mode=mode)
    return -apart.masked_fill(~known, torch.inf)


def class_means(
    features: np.ndarray, labels: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean features of each class and its rows; zeros for a class without rows."""
    counts = np.bincount(labels, minlength=num_classes).astype(np.float32)
    means = np.zeros((num_classes, features.shape[1]), dtype=np.float32)
    for label in np.flatnonzero(counts):
        means[label] = features[labels == label].mean(axis=0, dtype=np.float64)
    return means, counts
