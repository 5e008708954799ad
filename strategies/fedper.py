"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization
Layers", 2019.

Clients share the body of their model, whose changes are averaged by samples, and keep the last
layers, the head, to themselves. FedRep has the same server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import body_mask
from strategies.shared_part import SharedPart


@dataclass(frozen=True)
class FedPerParams:
    """Settings of FedPer."""

    head_layers: int = setting(1, "number of last layers that a client keeps to itself", low=1)


class FedPer(SharedPart):
    """Averages bodies."""

    Params = FedPerParams

    @classmethod
    def shortage(cls, params: Any, clients: int, layers: int | None = None) -> str:
        """Refuse a head that is the whole model."""
        if layers is None or params.head_layers < layers:
            return ""
        return (
            f"head-layers = {params.head_layers} leaves nothing to share: the model has {layers} "
            "layers. Lower the setting, or use algo=local."
        )

    def shared(self) -> np.ndarray:
        """Share all but the head, statistics too."""
        return body_mask(self.info.shapes, self.params.head_layers, self.buffers.size)
