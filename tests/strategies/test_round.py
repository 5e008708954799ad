"""A strategy's data: the run's defaults, clients' scores, a round's replies."""

from __future__ import annotations

import pytest
from scripted import UPDATES, one_round, reply_with, run_info

from fedsuite.core.messages import Result
from fedsuite.core.vector import Vector
from strategies.fedavg import FedAvg
from strategies.round import Round, RoundRecord, RunInfo


def scored(client: int, correct: float, count: float) -> Result:
    return Result(client, {}, {"num-examples": count, "correct": correct})


def test_by_default_a_run_is_one_plain_round_of_everybody() -> None:
    info = RunInfo(2, {0: 1, 1: 1}, seed=0)
    assert (info.num_rounds, info.local_epochs, info.eval_every) == (1, 1, 1)
    assert (info.fraction_train, info.min_train_clients, info.server_lr) == (1.0, 1, 1.0)
    assert info.plain_sgd and not info.personal_eval
    assert info.learning_rate(1) == info.learning_rate(7) == 0.01
    assert info.probe is None and info.shapes == {}


def test_clients_without_test_rows_have_no_score_and_are_not_unscored() -> None:
    """1 of 2 and 3 of 4: 4 of 6 rows, mean 5/8, deviation 1/8; client 1 has no rows."""
    record = RoundRecord()
    found = record.add_scores([scored(0, 1, 2), scored(1, 0, 0), scored(2, 3, 4)], unscored=3)
    assert found == {
        "personal_accuracy": pytest.approx(2 / 3),
        "personal_mean": pytest.approx(0.625),
        "personal_std": pytest.approx(0.125),
        "personal_worst": 0.5,
        "personal_best": 0.75,
        "personal_worst_tenth": 0.5,
    }
    assert record.scalars == found | {"unscored": 3}
    assert {row["client"]: row["status"] for row in record.rows} == {
        0: "ok", 1: "no test rows", 2: "ok",
    }  # fmt: skip
    assert not record.is_void


def test_nobody_with_test_rows_is_no_score() -> None:
    record = RoundRecord()
    assert record.add_scores([scored(0, 0, 0), scored(1, 0, 0)]) == {}
    assert record.scalars == {} and len(record.rows) == 2


def test_steps_that_were_not_sent_are_none() -> None:
    seen: list[Round] = []

    class Watching(FedAvg):
        def aggregate(self, this_round: Round) -> Vector:
            seen.append(this_round)
            assert this_round.weights is None
            moved = super().aggregate(this_round)
            assert this_round.weights is not None
            return moved

    one_round(Watching(run_info()), reply_with(UPDATES), [0, 0])
    assert seen[0].num_steps.tolist() == [0, 0, 0]
    assert seen[0].per_client["weight"].tolist() == [1 / 8, 3 / 8, 1 / 2]
