"""Messages to deployed nodes and their replies, which are fetched one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsuite.core.messages import read_round, read_score
from fedsuite.core.protocol import SAVE_MODEL
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


class Scores:
    """Scores of clients that came with the results of their training: they need not be asked."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], RecordDict] = {}  # node, round -> content of a reply

    def note(self, reply: Message, client: int, server_round: int) -> None:
        """Keep the score in a reply to training, until its node is asked for it."""
        if score := read_score(reply.content, client):
            self._found[reply.metadata.src_node_id, server_round] = score

    def answer(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return replies to the messages that ask for known scores, and the other messages."""
        replies, others = [], []
        for message in messages:
            node, server_round = message.metadata.dst_node_id, read_round(message.content)
            is_score = message.metadata.message_type == MessageType.EVALUATE
            wanted = is_score and SAVE_MODEL not in message.content.config_records["config"]
            score = self._found.pop((node, server_round), None) if wanted else None
            if score is None:
                others.append(message)
            else:
                set_message_id(message, f"{node}/{server_round}")
                replies.append(Message(score, reply_to=message))
                set_source(replies[-1], node)
        if not replies:
            self._found.clear()
        return replies, others


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
