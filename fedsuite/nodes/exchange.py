"""Messages to deployed nodes and their replies, which are fetched one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsuite.flower.compat import TRANSPORT_ERRORS, set_message_id, set_source

log = logging.getLogger("fedsuite")
POLL_SECONDS = 1.0
UNREADABLE = 1


def exchange(grid: Grid, messages: Sequence[Message], seconds: float) -> list[Message]:
    """Send messages and wait for their replies, so long at the most."""
    numbers = grid.push_messages(messages)
    waiting = {
        number: message.metadata.dst_node_id
        for number, message in zip(numbers, messages, strict=True)
        if number
    }
    replies: list[Message] = []
    deadline = time.monotonic() + seconds
    while waiting:
        for number, node in list(waiting.items()):
            for reply in pull(grid, number, node):
                del waiting[number]
                replies.append(reply)
        if not waiting or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    return replies


def pull(grid: Grid, number: str, node: int) -> list[Message]:
    """Return the reply to one message, if it is there; one that cannot be read is an error.

    Replies are fetched one by one: Flower reads what a node sent as it fetches it, and garbage of
    one must not cost the others theirs. Whom it is from is known from the message, not believed.
    """
    try:
        replies = list(grid.pull_messages([number]))
    except TRANSPORT_ERRORS:
        raise
    except Exception as problem:
        log.warning("what node %d sent cannot be read: %r", node, problem)
        return [_unreadable(number, node, problem)]
    for reply in replies:
        set_source(reply, node)
    return replies


def _unreadable(number: str, node: int, problem: Exception) -> Message:
    question = Message(RecordDict(), node, MessageType.QUERY)
    set_message_id(question, number)
    return Message(Error(UNREADABLE, f"its reply cannot be read: {problem!r}"), reply_to=question)
