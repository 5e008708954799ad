"""FedAvg's client (McMahan et al., AISTATS 2017): local SGD from the global model."""

from __future__ import annotations

from clients.base import Client


class FedAvgClient(Client):
    """``w_i <- w_i - lr g`` for the local epochs or steps; sends ``w_i - w``."""
