"""Local differential privacy: a node adds noise to its update before it leaves the node.

It is switched on by the node's own node-config, so that the server cannot switch it off. Clipping
and noise are Flower's ``LocalDpMod``. The noise does not derive from the run's seed: who knows the
seed could subtract it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import ClientAppCallable

from fedsuite.core.messages import COMPRESSED, Result, pack, write_arrays, write_results
from fedsuite.core.settings import UserError

KEYS = ("dp-clipping-norm", "dp-epsilon", "dp-delta")
UPDATE = ["update"]
EXACT = "norm"  # a number of the update as it was before noise, which the server does not need
NEXT_TO_NOTHING = 1e-18  # the least whose square is a float32 above zero, roughly


def read_privacy(node_config: Mapping[str, Any]) -> LocalDpMod | None:
    """Return the privacy that a node-config asks for; None if it asks for none.

    Two updates of norm ``C`` are at most ``2 C`` apart, which is the sensitivity.
    """
    given = [key for key in KEYS if key in node_config]
    if not given:
        return None
    values = [node_config.get(key) for key in KEYS]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    fine = len(numbers) == len(KEYS) and all(v > 0 and math.isfinite(v) for v in numbers)
    if not fine or numbers[2] >= 1:
        said = " ".join(f"{key}={value}" for key, value in zip(KEYS, values, strict=True))
        raise UserError(
            f"invalid values {said}: privacy needs all three, positive, and dp-delta below 1, "
            "e.g. dp-clipping-norm=1.0 dp-epsilon=5.0 dp-delta=1e-5."
        )
    norm, epsilon, delta = (float(value) for value in numbers)
    return LocalDpMod(norm, 2 * norm, epsilon, delta)


def local_privacy(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Clip the update and add noise after training: a Flower mod around the ClientApp."""
    reply = call_next(message, context)
    if message.metadata.message_type != MessageType.TRAIN or reply.has_error():
        return reply
    guard, vectors = read_privacy(context.node_config), list(reply.content.array_records.items())
    if guard is None or not vectors:
        return reply
    name, record = vectors[0]
    compressed = any(array.stype in COMPRESSED for array in record.values())
    if list(record) != UPDATE or len(vectors) > 1 or compressed:
        cause = "the algorithm sends more than an update of the model. Use another algorithm"
        if compressed:
            cause = "the run compresses updates. Use compression=none"
        asked = f"This node asks for privacy (dp-epsilon = {guard.epsilon:g})"
        reason = f"{asked}, but {cause}, or no privacy."
        client = int(name.partition(".")[2])
        reply.content = write_results([Result(client, error=reason)])
        return reply
    reply.content.metric_records[name.replace("arrays", "metrics")].pop(EXACT, None)
    update = record["update"].numpy()
    if not update.any():  # LocalDpMod divides by the norm
        reply.content[name] = write_arrays({"update": np.full_like(update, NEXT_TO_NOTHING)})
    nothing = np.zeros_like(update)
    message.content = RecordDict({"shared": ArrayRecord({"update": pack(nothing)})})
    return guard(message, context, lambda _message, _context: reply)
