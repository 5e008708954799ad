"""Which replies count: numbers at their limits, the order of clients, those not asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from scripted import UPDATES, ScriptedGrid, reply_with, result

from fedsuite.core.messages import Result, write_results
from strategies.replies import check_score, check_update, is_divergence, read_replies


@pytest.mark.parametrize(("correct", "count"), [(0, 1), (1, 1), (10**9, 10**9)])
def test_scores_at_the_limits_count(correct: int, count: int) -> None:
    assert check_score(Result(0, {}, {"num-examples": count, "correct": correct})) == ""


def test_numbers_of_a_reply_have_limits() -> None:
    def check(limits: Any = None, needs: tuple[str, ...] = (), **metrics: float) -> str:
        vectors = {"update": np.zeros(2, np.float32)}
        given = {"num-examples": 1.0} | metrics
        return check_update(Result(0, vectors, given), {"update": 2}, needs, limits)

    assert check(steps=0.0, seconds=0.0) == check(steps=1e9, seconds=1e9) == check() == ""
    assert check(steps=-1.0) == "invalid value -1.0 for steps"
    assert check(seconds=1.1e9) == "invalid value 1100000000.0 for seconds"
    assert check({"loss": (0.0, 2.0)}, loss=2.0) == ""
    assert check({"loss": (0.0, 2.0)}, loss=2.5) == "invalid value 2.5 for loss"
    assert check({"loss": (0.0, 2.0)}, steps=-1.0) == "invalid value -1.0 for steps"
    assert check(needs=("loss",)) == "'loss' is missing" and check(needs=("loss",), loss=1.0) == ""


def test_examples_are_whole_and_at_least_one() -> None:
    def check(count: float | None) -> str:
        metrics = {} if count is None else {"num-examples": count}
        return check_update(Result(0, {}, metrics), {}, ())

    assert check(1) == check(10**9) == check(3.0) == ""
    assert check(10**9 + 1) == "invalid value 1000000001 for num-examples"
    assert check(None) == check(0) == "invalid value 0 for num-examples"


def asked(node: int) -> Message:
    """A message to a node, which belongs to a run once there is a grid."""
    ScriptedGrid(reply_with(UPDATES))
    return Message(write_results([]), node, "train")


def test_replies_are_sorted_by_client_and_those_not_asked_are_few() -> None:
    """Node 1000 answers for 3 and 1, and for 12 others, of whom ten are named."""
    content = write_results([result(client, [0, 0]) for client in (3, 1, *range(20, 32))])
    reply = Message(content, reply_to=asked(1000))
    results, others = read_replies([reply], {1000: [3, 1], 1001: [2]})
    assert [(r.client, r.error) for r in results] == [(1, ""), (2, "no reply in time"), (3, "")]
    assert others == [(c, "node 1000 was not asked for this client") for c in range(20, 30)]


def test_the_end_of_a_long_error_is_kept() -> None:
    failed = Message(Error(1, "x" + "y" * 5000), reply_to=asked(1000))
    (only,), _ = read_replies([failed], {1000: [4]})
    assert only.client == 4 and only.error == "y" * 4000


@pytest.mark.parametrize("name", ["loss", "accuracy", "anything-else"])
def test_every_number_of_a_client_is_bounded(name: str) -> None:
    """Like vectors by float32, whose largest is 3.4028235e38, in training and in a score."""

    def problems(value: float) -> list[str]:
        metrics = {"num-examples": 1, "correct": 1, name: value}
        result = Result(0, {}, metrics)
        return [check_update(result, {}, ()), check_score(result)]

    assert problems(3.4028234e38) == problems(-3.4028234e38) == ["", ""]
    assert problems(6e307) == [f"metric '{name}' is 6e+307, beyond float32"] * 2
    assert problems(-3.41e38) == [f"metric '{name}' is -3.41e+38, beyond float32"] * 2
    assert all(map(is_divergence, problems(6e307)))


def test_a_number_of_rows_beyond_float32_is_no_divergence() -> None:
    problem = check_score(Result(0, {}, {"num-examples": 1e300, "correct": 1}))
    assert problem == "invalid value 1e+300 for num-examples" and not is_divergence(problem)


def test_replies_after_one_that_failed_count() -> None:
    failed = Message(Error(1, "on fire"), reply_to=asked(1000))
    good = Message(write_results([result(2, [0, 0])]), reply_to=asked(1001))
    results, others = read_replies([failed, good], {1000: [3, 1], 1001: [2]})
    assert [(r.client, r.error) for r in results] == [
        (1, "node failed: on fire"), (2, ""), (3, "node failed: on fire"),
    ]  # fmt: skip
    assert others == []


def test_those_not_asked_are_named_in_the_order_of_their_numbers() -> None:
    content = write_results([result(client, [0, 0]) for client in (64, 5, 1)])
    _, others = read_replies([Message(content, reply_to=asked(1000))], {1000: [1]})
    assert [client for client, _ in others] == [5, 64]


@pytest.mark.parametrize("name", ["steps", "seconds", "cpu-seconds"])
def test_what_a_client_did_is_between_nothing_and_a_billion(name: str) -> None:
    def check(value: float) -> str:
        return check_update(Result(0, {}, {"num-examples": 1, name: value}), {}, ())

    assert check(0.0) == check(1e9) == ""
    assert check(-0.5) == f"invalid value -0.5 for {name}"
    assert check(1.5e9) == f"invalid value 1500000000.0 for {name}"


def test_a_score_has_both_of_its_numbers_or_there_were_no_rows() -> None:
    def check(**metrics: float) -> str:
        return check_score(Result(0, {}, {n.replace("_", "-"): v for n, v in metrics.items()}))

    assert check(num_examples=0, correct=0) == check(num_examples=1, correct=0) == ""
    assert check(num_examples=2) == "invalid value None for correct"
    assert (
        check(correct=0) == check(num_examples=0, correct=1) == ("invalid value 0 for num-examples")
    )
    assert check(num_examples=2, correct=2.5) == "invalid value 2.5 for correct"
