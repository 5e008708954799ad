"""Nodes that fail as a whole, as Ray's workers do when the kernel kills them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flwr.app import Error, Message

from fedsuite.core.messages import read_round
from fedsuite.engines.inline import InlineGrid
from fedsuite.flower.compat import UNREADABLE_REPLY

REASON = "<class 'ray.exceptions.ActorDiedError'>:<'The actor died.\n\tclass_name: ClientAppActor'>"


class LossyGrid(InlineGrid):
    """``is_killed(kind, round, node number, how often it was tried)`` says who fails.

    A node's first question has the kind ``query`` and the round 0.

    A node that is killed has done its work first: what it wrote to the disk stays there.
    """

    def __init__(self, num_nodes: int, is_killed: Callable[[str, int, int, int], bool]) -> None:
        super().__init__(num_nodes)
        self.is_killed = is_killed
        self.tries: dict[tuple[str, int, int], int] = {}
        self.batches: list[int] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        self.batches.append(len(sent))
        return super().send_and_receive(sent, timeout=timeout)

    def _handle(self, message: Message) -> Message:
        reply = super()._handle(message)
        kind, node = message.metadata.message_type, message.metadata.dst_node_id - 1000
        number = 0
        if kind != "query":
            number = read_round(message.content)
        key = (kind, number, node)
        self.tries[key] = self.tries.get(key, 0) + 1
        if self.is_killed(*key, self.tries[key]):
            return Message(Error(UNREADABLE_REPLY, REASON), reply_to=message)
        return reply
