"""Which nodes a run starts with, and when: by a clock of its own, in no time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedsuite.core.settings import UserError
from fedsuite.engines.inline import InlineGrid
from fedsuite.nodes import deployed, queries
from fedsuite.nodes.deployed import DeployedNodes
from fedsuite.nodes.queries import Answer
from tasks.own_schema import Description

QUERY_TAKES = 4.0


@dataclass(frozen=True)
class Coming:
    """A node with a partition: when it connects, and how long it takes to answer.

    It is gone at ``until``. One that ``flaps`` is connected for two seconds, and then not for two.
    One with ``rows`` has data of its own, so described.
    """

    number: int
    count: int
    at: float = 0.0
    takes: float = QUERY_TAKES
    flaps: bool = False
    rows: str = ""
    until: float = inf

    def is_connected(self, now: float) -> bool:
        return self.at <= now < self.until and not (self.flaps and now % 4 >= 2)


class Timeline(InlineGrid):
    """A grid whose nodes connect and answer when they should, by a clock that sleeping moves.

    The node at place i has the id i.
    """

    def __init__(self, *nodes: Coming) -> None:
        super().__init__(0)
        self.nodes, self.now = nodes, 0.0
        self.due: dict[str, tuple[float, Message]] = {}
        self.told: list[tuple[int, str]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get_node_ids(self) -> Iterable[int]:
        return [place for place, node in enumerate(self.nodes) if node.is_connected(self.now)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            node, question = message.metadata.dst_node_id, message.content.config_records["config"]
            if "refusal" in question:
                self.told.append((node, str(question["refusal"])))
            number = f"{len(self.due)}"
            who = self.nodes[node]
            answer: dict[str, Any] = {"kind": "partition", "partition-id": who.number}
            answer |= {"num-partitions": who.count}
            if who.rows:
                answer = {"kind": "own", "identity": f"{node}" * 32, "description": who.rows}
            reply = Message(RecordDict({"node": ConfigRecord(answer)}), reply_to=message)
            self.due[number] = (self.now + who.takes, reply)
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [self.due[number] for number in message_ids]
        return [reply for when, reply in found if when <= self.now]


def gather(
    monkeypatch: pytest.MonkeyPatch, *nodes: Coming, minimum: int = 1, **known: Any
) -> tuple[DeployedNodes, Timeline]:
    """Gather nodes; return them and the grid, whose clock says how long it took."""
    grid = Timeline(*nodes)
    clock = SimpleNamespace(monotonic=grid.monotonic, sleep=grid.sleep)
    monkeypatch.setattr(deployed, "time", clock)
    monkeypatch.setattr(queries, "time", clock)
    gathered = DeployedNodes({"run": "{}"}, **known)
    gathered.gather(grid, minimum, 3600.0)
    return gathered, grid


def three(at: float = 0.0, takes: float = QUERY_TAKES) -> list[Coming]:
    return [Coming(number, 3, at, takes) for number in range(3)]


def test_nodes_that_agree_and_are_all_here_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, *three())
    assert nodes.present == {0: 0, 1: 1, 2: 2} and grid.now == QUERY_TAKES


def test_a_first_node_that_says_it_is_the_only_one_does_not_train_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers after 4 s; the others connect at 12 s, within the 20 s that it is doubted."""
    nodes, grid = gather(monkeypatch, Coming(0, 1), *three(at=12.0))
    assert nodes.present == {0: 1, 1: 2, 2: 3} and nodes.num_partitions == 3
    assert [node for node, _ in grid.told] == [0]
    assert "it has num-partitions = 1, the other nodes have num-partitions = 3" in grid.told[0][1]


def test_a_misconfigured_node_does_not_end_a_run_that_wants_more_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """min-train-clients = 2 is more than its one partition, but not than the others' three."""
    nodes, _ = gather(monkeypatch, Coming(0, 1), *three(at=12.0), minimum=2)
    assert nodes.count == 3


def test_one_node_alone_is_believed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, Coming(0, 1))
    assert nodes.present == {0: 0} and nodes.count == 1
    assert grid.now == QUERY_TAKES + deployed.ALONE_SECONDS


def test_a_first_node_with_other_rows_does_not_decide_the_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With data of their own nobody knows how many are coming: one alone is doubted as well."""
    others = [Coming(0, 0, at=12.0, rows="age") for _ in range(2)]
    odd = Coming(0, 0, rows="height")
    nodes, grid = gather(monkeypatch, odd, *others, describe=lambda answer: answer.description)
    assert sorted(nodes.present.values()) == [1, 2]
    assert grid.told == [(0, "it has height, most other nodes have age")]
    assert grid.now == 12.0 + QUERY_TAKES + deployed.SETTLE_SECONDS


def test_one_node_alone_is_told_of_a_run_that_wants_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="the nodes have 1 partition. Use at most 1"):
        gather(monkeypatch, Coming(0, 1), minimum=2)


def test_nothing_is_settled_while_a_connected_node_has_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of two are here after 4 s; the three that connected with them answer after 30 s."""
    nodes, _ = gather(monkeypatch, Coming(0, 2), Coming(1, 2), *three(takes=30.0))
    assert nodes.num_partitions == 3 and nodes.present == {0: 2, 1: 3, 2: 4}


def test_a_node_that_never_answers_is_waited_for_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, grid = gather(monkeypatch, *three(), Coming(0, 3, takes=inf))
    assert nodes.present == {0: 0, 1: 1, 2: 2} and grid.now == deployed.LATE_SECONDS


def test_a_node_that_connects_again_and_again_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is waited for a minute from its first connection, not from its last."""
    flapping = Coming(0, 5, takes=inf, flaps=True)
    nodes, grid = gather(monkeypatch, *three(), flapping)
    assert nodes.present == {0: 0, 1: 1, 2: 2} and grid.now <= deployed.LATE_SECONDS


def test_a_tie_waits_for_the_node_that_decides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node each says 5 and 3 partitions; at 50 s a second one says 3."""
    nodes, _ = gather(monkeypatch, Coming(0, 5), Coming(1, 3), Coming(0, 3, at=50.0))
    assert nodes.num_partitions == 3 and nodes.present == {0: 2, 1: 1}


def test_one_that_disagrees_costs_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, Coming(0, 5), *three())
    assert nodes.num_partitions == 3 and [node for node, _ in grid.told] == [0]
    assert grid.now == QUERY_TAKES + deployed.SETTLE_SECONDS


def test_a_missing_partition_is_waited_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, *three()[:2])
    assert nodes.present == {0: 0, 1: 1} and nodes.count == 3
    assert grid.now == QUERY_TAKES + deployed.LATE_SECONDS + deployed.POLL_SECONDS


def test_a_first_node_that_comes_late_is_doubted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects 70 s after the run was submitted, the others 6 s after it."""
    nodes, grid = gather(monkeypatch, Coming(0, 5, at=70.0), *three(at=76.0))
    assert nodes.num_partitions == 3 and nodes.present == {0: 1, 1: 2, 2: 3}
    assert grid.now == 76.0 + QUERY_TAKES + deployed.SETTLE_SECONDS


@pytest.mark.parametrize("period", [3.0, 20.0])
@pytest.mark.parametrize("rows", ["", "age"])
def test_a_node_restarted_without_end_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch, period: float, rows: str
) -> None:
    """It never answers, and has another id each time; all others are here after 4 s."""
    others = [Coming(number, 3, rows=rows) for number in range(3)]
    starts = [period * number for number in range(100)]
    restarted = [Coming(0, 3, at, inf, until=at + period) for at in starts]
    nodes, grid = gather(monkeypatch, *others, *restarted)
    assert sorted(nodes.present.values()) == [0, 1, 2]
    assert grid.now == QUERY_TAKES + deployed.LATE_SECONDS


def test_it_is_said_how_many_are_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedsuite")
    gather(monkeypatch, *three(), Coming(0, 3, at=1.0), minimum=3)
    gather(monkeypatch, Coming(0, 1))
    said = [record.getMessage() for record in caplog.records]
    assert "3 nodes here, 1 more answering" in said and "1 node here, 0 more answering" in said


def test_a_description_is_read_once() -> None:
    rows = Description("tabular", 2, ("a", "b"), (), {"age": (2.0, 4.0, 10.0)})
    answer = Answer(1, "own", description=rows.to_json())
    assert answer.data == rows and answer.data is answer.data


def test_a_resumed_run_knows_how_many_partitions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, Coming(0, 1), num_partitions=1)
    assert nodes.present == {0: 0} and grid.now == QUERY_TAKES


def test_who_contradicts_after_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, grid = gather(monkeypatch, *three(), Coming(0, 1, at=60.0))
    grid.now = 60.0
    nodes.refresh(grid)
    grid.now = 70.0
    nodes.refresh(grid)
    assert nodes.present == {0: 0, 1: 1, 2: 2} and [node for node, _ in grid.told] == [3]
