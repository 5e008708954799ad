"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization
Layers", 2019.

Clients share the body of their model, whose changes are averaged by samples, and keep the last
layers, the head, to themselves. FedRep has the same server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import setting
from fedsuite.core.vector import body_mask, layers
from strategies.shared_part import SharedPart


@dataclass(frozen=True)
class FedPerParams:
    """Settings of FedPer."""

    head_layers: int = setting(1, "number of last layers that a client keeps to itself", low=1)


class FedPer(SharedPart):
    """Averages bodies."""

    Params = FedPerParams

    @classmethod
    def misfit(
        cls,
        params: Any,
        has_statistics: bool,
        plain_steps: bool = True,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> str:
        """Refuse a head that is the whole model."""
        count = len(layers(shapes or {}))
        if params.head_layers < count:
            return ""
        return (
            f"head-layers = {params.head_layers} leaves nothing to share: the model has {count} "
            "layers. Lower the setting, or use algo=local."
        )

    def shared(self) -> np.ndarray:
        """Share all but the head, statistics too."""
        return body_mask(self.info.shapes, self.params.head_layers, self.buffers.size)
