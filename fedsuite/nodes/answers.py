"""How a deployed node introduces itself. Everything in its answer is checked before use."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Message

from fedsuite.core.messages import MAX_REASON
from fedsuite.core.protocol import OWN, PARTITION, owner_name

MAX_PARTITIONS = 100_000
MIN_IDENTITY, MAX_IDENTITY = 16, 200
MAX_REFUSAL = 1000


class Refused(Exception):
    """A node that cannot take part; the message is a sentence for both sides."""


@dataclass(frozen=True)
class Answer:
    """How a node introduces itself.

    A node with a partition (``kind`` PARTITION) gives its ``partition_id`` of ``num_partitions``.
    A node with data of its own (OWN) gives a secret, known here by a hash as its ``owner``, and a
    ``description`` of its data.
    """

    node_id: int
    kind: str
    partition_id: int = 0
    num_partitions: int = 0
    owner: str = ""
    description: str = ""


def read_answer(node: int, reply: Message) -> Answer:
    """Read a node's answer; refuse a node that cannot or must not take part."""
    if reply.has_error():
        raise Refused(f"it failed to answer: {reply.error.reason}"[:MAX_REASON])
    try:
        record = reply.content.config_records["node"]
        if "refusal" in record:
            raise Refused(str(record["refusal"])[:MAX_REFUSAL])
        if record["kind"] == PARTITION:
            return _partition(node, record["partition-id"], record["num-partitions"])
        if record["kind"] == OWN:
            return _own(node, str(record["identity"]), str(record["description"]))
        raise Refused(f"unknown kind of node {str(record['kind'])[:50]!r}")
    except KeyError as error:
        raise Refused(f"its answer has no {error}") from None


def _partition(node: int, number: object, count: object) -> Answer:
    if not (isinstance(number, int) and isinstance(count, int)):
        raise Refused("its partition-id or num-partitions is not a whole number")
    if not 0 <= number < count <= MAX_PARTITIONS:
        raise Refused(f"invalid partition-id {number} of num-partitions {count}")
    return Answer(node, PARTITION, number, count)


def _own(node: int, identity: str, description: str) -> Answer:
    if not MIN_IDENTITY <= len(identity) <= MAX_IDENTITY:
        raise Refused(f"its identity has {len(identity)} characters")
    return Answer(node, OWN, owner=owner_name(identity), description=description)
