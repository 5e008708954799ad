"""Messages to deployed nodes and their replies, which are fetched one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsuite.core.text import clean_line
from fedsuite.flower.compat import (
    TRANSPORT_ERRORS,
    UNREADABLE_REPLY,
    set_message_id,
    set_source,
)

log = logging.getLogger("fedsuite")
POLL_SECONDS = 0.25


def exchange(grid: Grid, messages: Sequence[Message], seconds: float) -> list[Message]:
    """Send messages; return the replies that arrive within ``seconds``."""
    numbers = grid.push_messages(messages)
    waiting = {
        number: message.metadata.dst_node_id
        for number, message in zip(numbers, messages, strict=True)
        if number
    }
    replies: list[Message] = []
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() <= deadline:
        number, node = next(iter(waiting.items()))
        del waiting[number]
        if found := pull(grid, number, node):
            replies += found
        else:
            waiting[number] = node  # to the end: one request per look, however many are missing
            time.sleep(POLL_SECONDS)
    for number, node in waiting.items():
        replies += pull(grid, number, node)
    return replies


def pull(grid: Grid, number: str, node: int) -> list[Message]:
    """Return the reply to one message, if it has arrived; an unreadable one becomes an error.

    Replies are fetched one by one: Flower decodes what a node sent as it fetches it, and garbage
    from one node must not cost the others their replies. The sender is taken from the message
    that is answered, not from the reply.
    """
    try:
        replies = list(grid.pull_messages([number]))
    except TRANSPORT_ERRORS:
        raise
    except Exception as problem:
        log.warning("the reply of node %d cannot be read: %s", node, clean_line(repr(problem)))
        return [_unreadable(number, node, problem)]
    for reply in replies:
        set_source(reply, node)
    return replies


def _unreadable(number: str, node: int, problem: Exception) -> Message:
    question = Message(RecordDict(), node, MessageType.QUERY)
    set_message_id(question, number)
    reason = clean_line(f"its reply cannot be read: {problem!r}")
    return Message(Error(UNREADABLE_REPLY, reason), reply_to=question)
