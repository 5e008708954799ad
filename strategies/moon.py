"""MOON: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021.

The server averages as FedAvg. Clients add ``mu`` times a contrastive loss that draws their features
to the global model's and away from those of their own last model.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.base import BaseStrategy


@dataclass(frozen=True)
class MoonParams:
    """Settings of MOON."""

    mu: float = setting(1.0, "weight of the contrastive loss; 0 = FedAvg", low=0)
    temperature: float = setting(0.5, "temperature of the contrastive loss", above=0, needs="mu")


class Moon(BaseStrategy):
    """FedAvg's server."""

    Params = MoonParams
