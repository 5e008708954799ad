"""FedPer's client (Arivazhagan et al., 2019): body and head train together, the head stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.shared_part import SharedPartClient
from fedsuite.core.vector import body_mask

if TYPE_CHECKING:
    from strategies.fedper import FedPerParams


class FedPerClient(SharedPartClient):
    """Keeps its last layers."""

    params: FedPerParams

    def shared(self) -> np.ndarray:
        """Share all but the head, statistics too."""
        model = self.model
        return body_mask(model.shapes, self.params.head_layers, model.buffers.numel())
