"""FedALA: Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for
Personalized Federated Learning", AAAI 2023.

The server averages as FedAvg. Clients start from a mixture of the global model and their own last
one, whose weights they learn: FedADW's adaptive start alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.base import BaseStrategy


@dataclass(frozen=True)
class FedAlaParams:
    """Settings of FedALA, and of FedADW's adaptive start."""

    adaptive: bool = setting(
        True, "adaptive local aggregation; false = start from the global model"
    )
    ala_layers: int = setting(
        1,
        "number of top layers aggregated adaptively, normalisation not counted; 0 = all",
        low=0,
        needs="adaptive=true",
    )
    ala_percent: int = setting(
        80,
        "per cent of a client's samples used to learn the mixing weights",
        low=1,
        high=100,
        needs="adaptive=true",
    )
    ala_lr: float = setting(
        1.0, "learning rate of the mixing weights", above=0, needs="adaptive=true"
    )
    ala_tolerance: float = setting(
        0.01,
        "first learning ends when the losses' standard deviation is below this",
        above=0,
        needs="adaptive=true",
    )
    ala_max_epochs: int = setting(
        50, "maximum epochs of the first learning", low=1, high=100_000, needs="adaptive=true"
    )


class FedAla(BaseStrategy):
    """FedAvg's server."""

    Params = FedAlaParams
