"""FedBN's client (Li et al., ICLR 2021): batch-norm layers and their statistics stay."""

from __future__ import annotations

import numpy as np

from clients.shared_part import SharedPartClient
from fedsuite.core.vector import unnormalised_mask


class FedBnClient(SharedPartClient):
    """Keeps its batch-norm layers."""

    def shared(self) -> np.ndarray:
        """Share the parameters that are not of a normalisation layer, and no statistics."""
        return unnormalised_mask(self.model.shapes, self.model.buffers.numel())
