"""The algorithms, and those of them that a test of clients can tell apart."""

from __future__ import annotations

from clients.fedavg import FedAvgClient
from fedsuite import registry

ALL = sorted(registry.ALGORITHMS)
# Methods of the server alone have FedAvg's client, which stands for theirs.
OWN_CLIENTS = [n for n in ALL if n == "fedavg" or registry.find(n).client is not FedAvgClient]
# On engines servers count too: two that keep vectors of their own, and one that chooses clients.
ON_ENGINES = [*OWN_CLIENTS, "fedadam", "fedavgm", "multi-krum"]
