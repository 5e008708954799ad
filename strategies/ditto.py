"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization", ICML 2021.

The server averages as FedAvg. Each client also trains a model of its own, pulled to the global one
by ``lam/2 |v - w|^2``, which the server never sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.base import BaseStrategy


@dataclass(frozen=True)
class DittoParams:
    """Settings of Ditto."""

    lam: float = setting(0.1, "pull of a client's own model to the global one; 0 = none", low=0)


class Ditto(BaseStrategy):
    """FedAvg's server."""

    Params = DittoParams
