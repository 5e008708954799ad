"""Names that both ends of a connection use."""

from __future__ import annotations

import hashlib

# What a deployed node has: a partition of a shared dataset, or data of its own.
PARTITION, OWN = "partition", "own"

# What a run that Flower started records as its engine: Flower's simulation, or deployed nodes.
RAY, DEPLOYED = "ray", "deployed"

# How a command that streams a run's output finds the run's own lines, and the run's folder.
LINE_MARK = "fedsuite: "
RESULTS_ARE_IN = "results are in "


def owner_name(identity: str) -> str:
    """Return the name by which the server knows the owner of a secret."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
