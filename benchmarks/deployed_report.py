"""The tables of deployed rounds as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from benchmarks.deployed_log import Message, Run
from benchmarks.report import table

PLAIN, OURS, SCORED = "plain", "fedavg", "personal"
LABELS = {
    PLAIN: "plain Flower app, clients train and evaluate",
    OURS: "fedsuite, `fedavg`: clients train, the server evaluates",
    SCORED: "fedsuite, `fedavg personal-eval=on`: clients train and evaluate",
}
PHASES: dict[str, Callable[[Message], float]] = {
    "until SuperExec has started a process": lambda m: m.started - m.receiving,
    "until the process has answered": lambda m: m.sending - m.started,
    "until the reply is at the SuperLink": lambda m: m.sent - m.sending,
}
NEXT = "until the next message is here"


def markdown(runs: Mapping[str, Sequence[Run]], nodes: int, imports: Sequence[float]) -> str:
    """Return what a round and a message cost in each variant, and where the time goes."""
    plain = statistics.median(_round_seconds(runs[PLAIN]))
    rows = []
    for name, some in runs.items():
        seconds = _round_seconds(some)
        low, middle, high = statistics.quantiles(seconds, n=4)
        rows.append(
            [
                LABELS[name],
                f"{middle:.1f}",
                f"{low:.1f}-{high:.1f}",
                f"{middle / plain:.2f}",
                f"{_messages_per_round(some, nodes):.1f}",
                f"{_cpu_per_message(some):.1f}",
            ]
        )
    heads = ["variant", "s/round", "quartiles", "x plain", "messages per node", "CPU s/message"]
    phases = [
        [
            what,
            *(f"{statistics.median(map(length, _messages(some))):.1f}" for some in runs.values()),
        ]
        for what, length in PHASES.items()
    ]
    waits = [f"{statistics.median(_waits(some)):.1f}" for some in runs.values()]
    flower, torch, ours = imports
    met = "met" if statistics.median(_round_seconds(runs[OURS])) <= plain else "missed"
    return "\n\n".join(
        [
            f"### Deployed rounds: {nodes} SuperNodes on this machine",
            table(heads, rows),
            "Where the seconds of a message go, medians:",
            table(["", *runs], [*phases, [NEXT, *waits]]),
            "Each message is answered by a process of its own, a fork of one per SuperNode that "
            "has imported Flower and PyTorch. A new Python process would take this CPU time to "
            f"import Flower: {flower:.2f} s, PyTorch: {torch:.2f} s, fedsuite's client: "
            f"{ours:.2f} s.",
            f"- fedsuite's `fedavg` no slower than the plain app: **{met}**",
        ]
    )


def _messages(runs: Sequence[Run]) -> list[Message]:
    """Return the messages from the second round on: with the first, nodes install the app."""
    return [message for run in runs for message in run.messages if message.round > 1]


def _round_seconds(runs: Sequence[Run]) -> list[float]:
    return [seconds for run in runs for seconds in run.round_seconds]


def _messages_per_round(runs: Sequence[Run], nodes: int) -> float:
    messages = [message for run in runs for message in run.messages if message.round]
    rounds = sum(len({m.round for m in run.messages if m.round}) for run in runs)
    return len(messages) / rounds / nodes


def _cpu_per_message(runs: Sequence[Run]) -> float:
    return sum(run.cpu_seconds for run in runs) / sum(len(run.messages) for run in runs)


def _waits(runs: Sequence[Run]) -> list[float]:
    """Return how long SuperNodes waited for their next message after a reply."""
    found = []
    for run in runs:
        for node in {message.node for message in run.messages}:
            own = [m for m in run.messages if m.node == node and m.round > 1]
            found += [later.receiving - earlier.sent for earlier, later in pairwise(own)]
    return found
