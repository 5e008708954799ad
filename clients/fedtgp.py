"""FedTGP's client (Zhang et al., AAAI 2024): FedProto's, with prototypes that the server trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.fedproto import FedProtoClient

if TYPE_CHECKING:
    from strategies.fedtgp import FedTgpParams


class FedTgpClient(FedProtoClient):
    """Sends the mean features of each class it has, and how many rows they stand for."""

    params: FedTgpParams
