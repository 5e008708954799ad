"""What the report says of each target."""

from __future__ import annotations

import dataclasses

from benchmarks.fixed_cost import FixedCost
from benchmarks.report import RoundTime, StepCost, Targets, Trial, WorkloadReport
from benchmarks.startup import ENDED, TimeLine
from benchmarks.suite_runs import Training
from benchmarks.verdicts import Verdict, at_least, at_most, of_steps, of_workload, verdict_table


def trial(*seconds: float, clients: int = 5) -> Trial:
    """A run whose busiest node trains half a second in each round, with 2.5 GB at most."""
    rows = [
        RoundTime(number, s, 0.5, 1.0, went=0.0, back=s + 0.25, clients=clients)
        for number, s in enumerate(seconds, start=1)
    ]
    parts = [Training(0.5, 1.0)] * len(rows)
    return Trial(0.0, 1.0, 9.0, 1, rows, parts, machine_bytes=2_500_000_000)


def test_rounds_are_judged_turn_by_turn() -> None:
    """Ratios 2/4 and 3/4 of (b); (c) takes 8/2 and 9/3 of ours."""
    trials = {"b": trial(9, 4, 4), "c": trial(9, 8, 9), "d": trial(9, 2, 3)}
    targets = Targets(of_plain_loop=0.6, ahead_of_flower=3.5)
    report = WorkloadReport("W", "title", "data", targets, trials)
    beside, ahead = of_workload(report)
    assert (beside.measured, beside.met) == ("0.62 x (0.56 to 0.69)", False)
    assert (ahead.measured, ahead.met) == ("3.50 x (3.25 to 3.75)", True)
    alone = dataclasses.replace(report, trials={"d": trials["d"]})
    assert [verdict.met for verdict in of_workload(alone)] == [None, None]


def test_replies_memory_and_what_is_beside_training_are_judged() -> None:
    """Rounds of 1 s without 0.5 s of training, 0.25 s between them."""
    targets = Targets(replies=5, machine_gigabytes=2.0, beside_training=0.75)
    report = WorkloadReport("W", "title", "data", targets, {"d": trial(9, 1, 1)})
    replies, memory, beside = of_workload(report)
    assert (replies.measured, replies.met) == ("5 or more in 3 rounds", True)
    assert (memory.measured, memory.met) == ("2.50 GB", False)
    assert (beside.measured, beside.met) == ("0.75 s", True)
    lost = dataclasses.replace(report, trials={"d": trial(9, 1, 1, clients=4)})
    assert of_workload(lost)[0].met is False
    failed = dataclasses.replace(trial(9, 1), error="died")
    failures = of_workload(dataclasses.replace(report, trials={"d": failed}))
    assert [verdict.met for verdict in failures] == [None, None, None]


def test_memory_is_not_judged_while_others_change() -> None:
    targets = Targets(machine_gigabytes=3.0)
    unsteady = dataclasses.replace(trial(9, 1), drift_bytes=1_500_000_000)
    (memory,) = of_workload(WorkloadReport("W", "title", "data", targets, {"d": unsteady}))
    assert memory.met is None
    assert memory.measured == "2.50 GB, while other processes changed by 1.50 GB"


def test_limits_themselves_are_met() -> None:
    assert at_most("x", 2.0, " s", [2.0]).met and not at_most("x", 2.0, " s", [2.01]).met
    assert at_least("x", 2.0, " s", [2.0]).met and not at_least("x", 2.0, " s", [1.99]).met


def test_steps_and_the_fixed_cost_are_judged() -> None:
    costs = [StepCost("taco", 1.0, 1.04), StepCost("fedprox", 1.0, 1.04), StepCost("x", error="-")]
    assert [verdict.met for verdict in of_steps("W", costs)] == [False, True]
    cost = FixedCost([5.0, 9.0, 6.0], [TimeLine({ENDED: 14.0})])
    assert [verdict.met for verdict in cost.verdicts()] == [True, False]


def test_the_table_has_a_line_per_verdict() -> None:
    lines = verdict_table([Verdict("a", "b", "c", False), Verdict("a", "b")]).splitlines()
    assert lines[2:] == ["| a | b | c | **missed** |", "| a | b | - | not measured |"]
