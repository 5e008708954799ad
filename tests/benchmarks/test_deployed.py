"""Deployed rounds seen from outside: what SuperNodes log, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.deployed_log import LogReader, Message, Run, read_messages
from benchmarks.deployed_report import OURS, PLAIN, SCORED, markdown

LOG = """\
INFO :      [RUN 7]
INFO :      Receiving: query message (ID: a)
INFO :      Received successfully
INFO :      Start `flwr-clientapp` process
INFO :      Sending: query message (ID: b)
INFO :      Sent successfully
INFO :      [RUN 7, ROUND 2]
INFO :      Receiving: train message (ID: c)
INFO :      Received successfully
INFO :      Start `flwr-clientapp` process
INFO :      [RUN 7, ROUND 2]
INFO :      Sending: train message (ID: d)
INFO :      Sent successfully
INFO :      Receiving: evaluate message (ID: e)
"""


def test_messages_are_read_from_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line per second; the last message has no answer yet."""
    log = tmp_path / "node.log"
    log.write_text("INFO :      earlier\n")
    reader, clock = LogReader([log]), iter(range(99))
    monkeypatch.setattr("benchmarks.deployed_log.time.monotonic", lambda: float(next(clock)))
    for line in LOG.splitlines(keepends=True):
        with log.open("a") as file:
            file.write(line)
        reader.read()
    expected = [Message(0, "query", 0, 1, 3, 4, 5), Message(0, "train", 1, 7, 9, 11, 12)]
    assert reader.messages() == expected
    reader.forget()
    assert reader.messages() == [] and read_messages(0, []) == []


def run(round_seconds: float, evaluates: bool) -> Run:
    """Four rounds at one node; each message is 1 s in SuperExec, 2 s in its process, 0.5 s back."""
    messages = []
    for number in range(1, 5):
        kinds = ("train", "evaluate") if evaluates else ("train",)
        for place, kind in enumerate(kinds):
            at = round_seconds * (number + place / len(kinds))
            messages.append(Message(0, kind, number, at, at + 1, at + 3, at + 3.5))
    return Run(messages, cpu_seconds=2.5 * len(messages))


def test_rounds_are_measured_from_the_second_on() -> None:
    assert run(8, evaluates=True).round_seconds == [8, 8]


def test_the_report_compares_with_the_plain_app() -> None:
    runs = {PLAIN: [run(10, True)], OURS: [run(5, False)], SCORED: [run(9, True)]}
    lines = markdown(runs, 1, [0.9, 1.4, 0.1]).splitlines()
    cells = [line.split(" | ")[1:] for line in lines if line.startswith(("| plain", "| fedsuite"))]
    assert cells == [
        ["10.0", "10.0-10.0", "1.00", "2.0", "2.5 |"],
        ["5.0", "5.0-5.0", "0.50", "1.0", "2.5 |"],
        ["9.0", "9.0-9.0", "0.90", "2.0", "2.5 |"],
    ]
    assert "| until the process has answered | 2.0 | 2.0 | 2.0 |" in lines
    assert "| until the next message is here | 1.5 | 1.5 | 1.0 |" in lines
    assert lines[-1].endswith("**met**")
