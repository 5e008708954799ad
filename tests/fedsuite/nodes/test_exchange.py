"""Replies of deployed nodes: waiting for many costs no more requests than waiting for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import Message, MessageType, RecordDict

from fedsuite.flower.compat import make_run, set_message_id
from fedsuite.nodes import exchange as module
from fedsuite.nodes.exchange import POLL_SECONDS, exchange


class SlowGrid:
    """Nodes 1, 2, 3, ... that answer at given times; a clock that moves with each wait alone."""

    def __init__(self, *answer_at: float) -> None:
        self.answer_at = dict(zip("123456", answer_at, strict=False))
        self.now = 0.0
        make_run(1, simulated=False)
        self.requests: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            set_message_id(message, str(message.metadata.dst_node_id))
        self.sent = {message.metadata.message_id: message for message in messages}
        return list(self.sent)

    def pull_messages(self, numbers: Iterable[str]) -> list[Message]:
        (number,) = numbers
        self.requests.append(number)
        ready = self.now >= self.answer_at[number]
        return [Message(RecordDict(), reply_to=self.sent[number])] if ready else []


def ask(grid: Any, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """Return the nodes whose replies arrive in time, in the order of arrival."""
    monkeypatch.setattr(module, "time", grid)
    nodes = range(1, len(grid.answer_at) + 1)
    messages = [Message(RecordDict(), node, MessageType.TRAIN) for node in nodes]
    return [reply.metadata.src_node_id for reply in exchange(grid, messages, seconds)]


def test_one_missing_reply_is_asked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each wait one request finds nothing: 1, then 1 again when 2 and 3 have come."""
    grid = SlowGrid(2 * POLL_SECONDS, POLL_SECONDS, 0.0)
    assert ask(grid, monkeypatch, seconds=60) == [2, 3, 1]
    assert grid.requests == ["1", "2", "3", "1", "1"]
    assert grid.now == 2 * POLL_SECONDS


def test_what_is_there_at_the_end_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is late; the others came while it was asked for."""
    grid = SlowGrid(99.0, POLL_SECONDS, POLL_SECONDS)
    assert ask(grid, monkeypatch, seconds=0) == [2, 3]
