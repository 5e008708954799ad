"""FedACG's client (Kim et al., CVPR 2024): starts from the look-ahead point and is held near it."""

from __future__ import annotations

from typing import Any

from clients.fedprox import FedProxClient
from fedsuite.core.vector import Vector


class FedAcgClient(FedProxClient):
    """``w_i <- w_i - lr (g + beta (w_i - received))``: FedProx around what was received."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Any]]:
        """Train as FedProx does with ``zeta = beta``."""
        return super().fit(parameters, config | {"zeta": config["beta"]})
