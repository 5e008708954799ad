"""How a deployed node introduces itself, and what of that is believed."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Message

from fedsuite.core.messages import MAX_REASON
from fedsuite.core.protocol import OWN, PARTITION, member_name

MAX_PARTITIONS = 100_000
MAX_IDENTITY = 200


class Refused(Exception):
    """A node that cannot take part; the message is a sentence for both sides."""


@dataclass(frozen=True)
class Answer:
    """How a node introduces itself."""

    node_id: int
    kind: str
    place: int = 0
    places: int = 0
    member: str = ""
    description: str = ""


def read_answer(node: int, reply: Message) -> Answer:
    """Read how a node introduces itself, believing nothing."""
    if reply.has_error():
        raise Refused(f"it failed to answer: {reply.error.reason}"[:MAX_REASON])
    try:
        record = reply.content.config_records["node"]
        if "refusal" in record:
            raise Refused(str(record["refusal"])[:1000])
        if record["kind"] == PARTITION:
            place, places = record["place"], record["places"]
            if not (isinstance(place, int) and isinstance(places, int)):
                raise Refused("its partition is not a number")
            if not 0 <= place < places <= MAX_PARTITIONS:
                raise Refused(f"partition {place} of {places} is not possible")
            return Answer(node, PARTITION, place, places)
        if record["kind"] == OWN:
            identity = str(record["identity"])
            if not 16 <= len(identity) <= MAX_IDENTITY:
                raise Refused("its identity is not possible")
            return Answer(
                node, OWN, member=member_name(identity), description=str(record["description"])
            )
        raise Refused(f"it is of kind {str(record['kind'])[:50]!r}, which is not known")
    except KeyError as error:
        raise Refused(f"its answer lacks {error}") from None
