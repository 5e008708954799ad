"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for
Personalized Federated Learning", ICML 2021.

As FedPer, but clients first train the head alone, then the body alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.settings import setting
from strategies.fedper import FedPer, FedPerParams


@dataclass(frozen=True)
class FedRepParams(FedPerParams):
    """Settings of FedRep."""

    head_epochs: int = setting(
        10, "local epochs of the head, before those of the body", low=0, high=100_000
    )


class FedRep(FedPer):
    """FedPer's server."""

    Params = FedRepParams
