"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across
Heterogeneous Clients", AAAI 2022.

No weights travel. Clients send the mean features of each of their classes; a class's global
prototype is the mean of those that the round's clients sent. Clients hold their features near the
prototypes and predict the nearest, as FedTGP's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import Vector
from strategies.base import Round, RunInfo
from strategies.prototypes import SharedPrototypes, class_means


@dataclass(frozen=True)
class FedProtoParams:
    """Settings of FedProto."""

    lam: float = setting(
        1.0, "weight of the distance of features from their class's prototype", low=0
    )


class FedProto(SharedPrototypes):
    """Averages prototypes, class by class."""

    Params = FedProtoParams

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.prototypes = np.zeros((self.classes, self.width), dtype=np.float32)
        self.known = np.zeros(self.classes, dtype=np.float32)

    def broadcast(self) -> dict[str, Vector]:
        """Send the prototypes, zeros for classes no client has sent, and which are known."""
        return {"prototypes": self.prototypes, "known": self.known}

    def aggregate(self, this_round: Round) -> Vector:
        """Renew the prototypes of the classes that were sent; the (unused) model stays."""
        held = this_round.arrays["counts"] > 0
        sent = this_round.arrays["prototypes"].reshape(len(held), self.classes, self.width)
        means, shown = class_means(sent, held)
        self.prototypes = np.where(shown[:, None], means, self.prototypes).astype(np.float32)
        self.known = np.maximum(self.known, shown).astype(np.float32)
        this_round.per_client["classes"] = held.sum(axis=1)
        this_round.scalars["known_classes"] = int(self.known.sum())
        return this_round.model

    def state(self) -> dict[str, Any]:
        """Return the prototypes, and the classes that were ever sent."""
        return super().state() | {"prototypes": self.prototypes, "known": self.known}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        super().load_state(state)
        self.prototypes, self.known = state["prototypes"], state["known"]
