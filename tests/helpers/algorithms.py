"""The algorithms, and those of them that a test of clients can tell apart."""

from __future__ import annotations

from typing import Any

from clients.fedavg import FedAvgClient
from fedsuite import registry

ALL = sorted(registry.ALGORITHMS)
# Methods of the server alone have FedAvg's client, which stands for theirs.
OWN_CLIENTS = [n for n in ALL if n == "fedavg" or registry.find(n).client is not FedAvgClient]
# Those that take many epochs per round of something smaller, in a few: for tests of engines.
FEW_EPOCHS: dict[str, dict[str, Any]] = {
    "fedadw": {"fedadw.ala-max-epochs": 4},
    "fedala": {"fedala.ala-max-epochs": 4},
    "fedrep": {"fedrep.head-epochs": 2},
}
# On engines servers count too: two that keep vectors of their own, and one that chooses clients.
ON_ENGINES = [*OWN_CLIENTS, "fedadam", "fedavgm", "multi-krum"]
