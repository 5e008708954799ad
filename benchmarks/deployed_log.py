"""What SuperNodes say in their logs while they work, with the time at which they said it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

RECEIVING = re.compile(r"Receiving: (\w+) message")
STARTED, SENDING, SENT = "Start `flwr-clientapp` process", "Sending: ", "Sent successfully"
Line = tuple[float, str]


@dataclass(frozen=True)
class Message:
    """One message at one SuperNode: what it was, and when each step of it began."""

    node: int
    kind: str
    round: int
    receiving: float
    started: float
    sending: float
    sent: float


@dataclass(frozen=True)
class Run:
    """One run: its messages, and the CPU time of the processes that answered them."""

    messages: Sequence[Message]
    cpu_seconds: float

    @property
    def round_seconds(self) -> list[float]:
        """Seconds from a round's first message to the next one's, from the second round on."""
        began: dict[int, float] = {}
        for message in self.messages:
            if message.kind == "train":
                first = began.get(message.round, message.receiving)
                began[message.round] = min(first, message.receiving)
        times = [began[number] for number in sorted(began)][1:]
        return [after - before for before, after in pairwise(times)]


class LogReader:
    """Reads logs as they grow."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._sizes = [0] * len(paths)
        self._rest = [b""] * len(paths)
        self._lines: list[list[Line]] = [[] for _ in paths]
        self.forget()

    def read(self) -> None:
        """Note the lines that are new, and the time."""
        now = time.monotonic()
        for number, path in enumerate(self._paths):
            with path.open("rb") as file:
                file.seek(self._sizes[number])
                added = file.read()
            self._sizes[number] += len(added)
            *whole, self._rest[number] = (self._rest[number] + added).split(b"\n")
            self._lines[number] += [(now, line.decode(errors="replace")) for line in whole]

    def forget(self) -> None:
        """Leave out what was said so far."""
        self.read()
        self._lines = [[] for _ in self._paths]

    def messages(self) -> list[Message]:
        """Return the messages of all SuperNodes that were answered."""
        return [m for node, lines in enumerate(self._lines) for m in read_messages(node, lines)]


def read_messages(node: int, lines: Iterable[Line]) -> list[Message]:
    """Return the messages that a SuperNode's lines tell of.

    Not every app tells Flower its rounds: a round begins with a message to train, and 0 is before.
    """
    messages, number, kind = [], 0, ""
    times: dict[str, float] = {}
    for when, text in lines:
        if found := RECEIVING.search(text):
            kind, times = found[1], {RECEIVING.pattern: when}
            number += kind == "train"
        for step in (STARTED, SENDING, SENT):
            if step in text:
                times[step] = when
        if SENT in text and len(times) == 4:
            messages.append(Message(node, kind, number, *times.values()))
    return messages
