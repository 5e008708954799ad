"""What clients say of their scores: checked, recorded, summarised, number by number."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from flwr.app import MetricRecord
from scripted import ScriptedGrid, hosted, reply_with, run_info, sent

from fedsuite.core.messages import Result
from strategies.base import BaseStrategy
from strategies.fedavg import FedAvg


def scores(answers: Mapping[int, Result]) -> tuple[BaseStrategy, MetricRecord | None]:
    strategy = hosted(FedAvg(run_info(personal_eval=True, num_classes=2)))
    grid = ScriptedGrid(reply_with(dict(answers)))
    messages = sent(strategy, "evaluate")
    return strategy, strategy.aggregate_evaluate(4, grid.send_and_receive(messages))


def scored(client: int, correct: float, count: float) -> Result:
    return Result(client, {}, {"num-examples": count, "correct": correct, "loss": 0.5})


def test_scores_of_clients_by_hand() -> None:
    """1/2, 3/4 and 4/4: mean 3/4, deviation sqrt((1/16 + 0 + 1/16)/3); all rows 8 of 10."""
    answers = {0: scored(0, 1, 2), 1: scored(1, 3, 4), 2: scored(2, 4, 4)}
    strategy, metrics = scores(answers)
    assert dict(metrics or {}) == {
        "personal-accuracy": pytest.approx(0.8),
        "personal-mean": pytest.approx(0.75),
        "personal-std": pytest.approx((1 / 24) ** 0.5),
        "personal-worst": 0.5,
        "personal-best": 1.0,
        "personal-worst-tenth": 0.5,
    }
    assert strategy.round_record.scalars["personal_worst"] == 0.5
    assert strategy.round_record.rows[1] == {
        "phase": "evaluate",
        "client": 1,
        "status": "ok",
        "accuracy": 0.75,
        "num_examples": 4,
        "correct": 3,
        "loss": 0.5,
    }


def test_scores_by_class_of_clients_by_hand() -> None:
    """Client 0: of 2 one right, the one of class 0; client 1: all 4 right; of class 0 3 of 3
    together, of class 1 2 of 3. F1 of class 0 6/7, of class 1 4/5. AUC: the mean of two.
    """
    one = Result(
        0,
        {},
        {"num-examples": 2, "correct": 1, "auc": 0.5},
        counts={"class-correct": [1, 0], "class-labels": [1, 1], "class-predicted": [2, 0]},
    )
    other = Result(
        1,
        {},
        {"num-examples": 4, "correct": 4, "auc": 1.0},
        counts={"class-correct": [2, 2], "class-labels": [2, 2], "class-predicted": [2, 2]},
    )
    strategy, metrics = scores(
        {0: one, 1: other, 2: Result(2, {}, {"num-examples": 0, "correct": 0})}
    )
    assert metrics is not None
    assert metrics["personal-macro-f1"] == pytest.approx((6 / 7 + 4 / 5) / 2)
    assert metrics["personal-balanced-accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert metrics["personal-auc"] == 0.75
    scalars = strategy.round_record.scalars
    assert scalars["personal_class_accuracy"] == {"0": 1.0, "1": pytest.approx(2 / 3)}
    rows = {row["client"]: row for row in strategy.round_record.rows}
    assert rows[0]["class_accuracy"] == {"0": 1.0, "1": 0.0} and rows[0]["auc"] == 0.5
    assert rows[0]["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)


def test_counts_of_too_few_clients_give_no_score_of_all() -> None:
    _, metrics = scores({0: scored(0, 1, 2), 1: scored(1, 3, 4), 2: scored(2, 4, 4)})
    assert metrics is not None and "personal-macro-f1" not in metrics


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"auc": 1.5}, "invalid value 1.5 for auc"), ({}, "the counts per class do not sum")],
)
def test_scores_by_class_that_cannot_be_are_left_out(change: dict[str, float], reason: str) -> None:
    counts = {"class-correct": [1, 0], "class-labels": [1, 2], "class-predicted": [2, 0]}
    wrong = Result(0, {}, {"num-examples": 2, "correct": 1} | change, counts=counts)
    strategy, _ = scores({0: wrong, 1: scored(1, 3, 4), 2: scored(2, 4, 4)})
    (row,) = (row for row in strategy.round_record.rows if row["client"] == 0)
    assert row["reason"].startswith(reason)


def test_a_client_cannot_write_its_own_accuracy() -> None:
    forged = {0: Result(0, {}, {"num-examples": 2, "correct": 1, "accuracy": 1.0, "client": 5})}
    strategy, _ = scores(forged | {c: scored(c, 1, 1) for c in (1, 2)})
    assert strategy.round_record.rows[0]["accuracy"] == 0.5
    assert strategy.round_record.rows[0]["client"] == 0


def test_scores_that_cannot_be_are_left_out_and_none_is_no_score() -> None:
    wrong = {0: scored(0, 3, 2), 1: scored(1, -1, 2), 2: scored(2, 1, 0)}
    strategy, metrics = scores(wrong)
    assert metrics is None
    assert [row["reason"] for row in strategy.round_record.rows] == [
        "invalid value 3 for correct",
        "invalid value -1 for correct",
        "invalid value 0 for num-examples",
    ]
    assert {row["phase"] for row in strategy.round_record.rows} == {"evaluate"}
