"""A simulation that loses power: for tests of what a resumed run has."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message

from fedsuite.engines.inline import InlineGrid


class PowerCut(BaseException):
    """Nothing in the suite expects it."""


class FailingGrid(InlineGrid):
    """Loses power after so many exchanges, with their replies."""

    def __init__(self, exchanges: int) -> None:
        super().__init__(1)
        self.left = exchanges

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Handle messages; lose the replies of the last exchange."""
        replies = super().send_and_receive(messages, timeout=timeout)
        self.left -= 1
        if self.left < 0:
            raise PowerCut
        return replies
