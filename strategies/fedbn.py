"""FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local
Batch Normalization", ICLR 2021.

Clients keep their batch-norm layers, parameters and statistics, to themselves; all other parameters
are averaged by samples. Without such layers it is FedAvg, scored on the clients' own samples.
"""

from __future__ import annotations

import numpy as np

from fedsuite.core.vector import unnormalised_mask
from strategies.shared_part import SharedPart


class FedBn(SharedPart):
    """Averages all but batch-norm layers."""

    def shared(self) -> np.ndarray:
        """Share the parameters that are not of a normalisation layer, and no statistics."""
        return unnormalised_mask(self.info.shapes, self.buffers.size)
