"""Names that server and nodes both know a thing by."""

from __future__ import annotations

import hashlib

PARTITION, OWN = "partition", "own"  # what a deployed node has: a part of a dataset, or its own


def member_name(identity: str) -> str:
    """Return under which name the server knows the owner of a secret."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
