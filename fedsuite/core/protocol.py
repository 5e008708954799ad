"""Constants and hashes that the server and its nodes share."""

from __future__ import annotations

import hashlib

# What a deployed node has: a partition of a shared dataset, or data of its own.
PARTITION, OWN = "partition", "own"

# What a run that Flower started records as its engine: Flower's simulation, or deployed nodes.
RAY, DEPLOYED = "ray", "deployed"

# The scalar of an evaluation message that asks clients to save the model they score.
SAVE_MODEL = "save-model"

# How what clients send is compressed.
NONE, TOP_K, INT8 = COMPRESSIONS = ("none", "top-k", "int8")

# What attackers do.
NO_ATTACK = "none"
ATTACKS = ("sign-flip", "gaussian", "label-flip", "scaled")
SIGN_FLIP, GAUSSIAN, LABEL_FLIP, SCALED = ATTACKS

# Marks of the run's own lines in Flower's output, of the one that names the run's folder, and of
# the one that says what share of client updates is missing.
LINE_MARK = "fedsuite: "
RESULTS_ARE_IN = "results are in "
INCOMPLETE_RUN = "incomplete: "

# What a command prints after the reason for which its run has ended.
ITS_FOLDER_IS = "the run failed; its folder is "
TO_RESUME = "to resume it: "


def owner_name(identity: str) -> str:
    """Return the name by which the server knows the owner of a secret."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
