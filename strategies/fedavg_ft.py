"""FedAvg with fine-tuning: the server is FedAvg's, and clients are scored after training the global
model for some epochs on their own samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.base import BaseStrategy


@dataclass(frozen=True)
class FedAvgFtParams:
    """Settings of FedAvg with fine-tuning."""

    epochs: int = setting(1, "epochs of fine-tuning; 0 = none", low=0, high=100_000)


class FedAvgFt(BaseStrategy):
    """FedAvg's server."""

    Params = FedAvgFtParams
