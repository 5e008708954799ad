"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020.

The server averages as FedAvg; the client adds ``zeta (w_local - w)`` to its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.base import BaseStrategy


@dataclass(frozen=True)
class FedProxParams:
    """Settings of FedProx."""

    zeta: float = setting(0.1, "weight of the proximal term; 0 = FedAvg", low=0, alias="mu")


class FedProx(BaseStrategy):
    """FedAvg's server; ``zeta`` travels to the clients."""

    Params = FedProxParams
