"""Sweeps as suites: which runs they have, and how their table is laid out."""

from __future__ import annotations

from typing import Any

import pytest

from fedsuite.core.settings import UserError
from fedsuite.suites.definition import Suite
from fedsuite.suites.sweep import make_sweep


def sweep(swept: dict[str, list[Any]], name: str = "", **fixed: Any) -> Suite:
    shared = {key.replace("_", "-"): value for key, value in fixed.items()}
    given = [key for key in (*swept, *shared) if key != "algo"]
    return make_sweep(swept, shared, given, name, ["run", "x"])


def labels(suite: Suite) -> list[list[Any]]:
    return [list(plan.labels.values()) for plan in suite.plans]


def test_all_combinations_are_run_in_order() -> None:
    suite = sweep({"algo": ["fedavg", "taco"], "seed": ["1", "2"], "lr": ["0.01", "1e-1"]})
    assert labels(suite) == [
        *([algo, seed, lr] for algo in ("fedavg", "taco") for seed in (1, 2) for lr in (0.01, 0.1))
    ]
    assert (suite.rows, suite.columns, suite.metric) == ("algo", ["lr"], "final_accuracy")
    assert [suite.resolve(plan).lr for plan in suite.plans[:2]] == [0.01, 0.1]


@pytest.mark.parametrize(
    ("swept", "rows", "columns"),
    [
        ({"lr": [0.1, 0.2], "seed": [1, 2], "momentum": [0.0, 0.9]}, "lr", ["momentum"]),
        ({"seed": [1, 2], "lr": [0.1, 0.2]}, "lr", []),
        ({"seed": [1, 2]}, "algo", []),
        ({"lr": [0.1, 0.2], "algo": ["fedavg", "avg"]}, "algo", ["lr"]),
    ],
)
def test_rows_are_algorithms_or_else_the_first_key(
    swept: dict[str, list[Any]], rows: str, columns: list[str]
) -> None:
    suite = sweep(swept) if "algo" in swept else sweep(swept, algo="fedavg")
    assert (suite.rows, suite.columns) == (rows, columns)
    assert all(plan.labels["algo"] in ("fedavg", "avg") for plan in suite.plans)


def test_a_setting_that_makes_no_difference_is_one_run() -> None:
    """FedAvg has no kappa, and an even division no alpha."""
    own = sweep({"algo": ["fedavg", "taco"], "taco.kappa": [0.5, 0.7]}, num_rounds=2)
    assert labels(own) == [["fedavg", "–"], ["taco", 0.5], ["taco", 0.7]]
    even = sweep({"partition": ["iid", "dirichlet"], "dirichlet-alpha": [0.1, 1]}, algo="fedavg")
    assert [row[1:] for row in labels(even)] == [
        ["iid", "–"],
        ["dirichlet", 0.1],
        ["dirichlet", 1.0],
    ]


def test_scores_are_those_that_the_runs_have() -> None:
    alone = sweep({"lr": [0.1, 0.2]}, algo="local")
    assert (alone.metric, alone.also) == ("personal_accuracy", [])
    both = sweep({"algo": ["local", "fedavg"]}, personal_eval="on")
    assert (both.metric, both.also) == ("final_accuracy", ["personal_accuracy"])


def test_the_name_says_what_is_swept_and_changes_with_what_is_not() -> None:
    """Another seed joins the sweep in its folder; other data do not."""
    names = [
        sweep({"algo": ["fedavg", "taco"], "seed": seeds}, num_rounds=rounds).name
        for seeds, rounds in (([1, 2], 5), ([1, 2, 3], 5), ([1, 2], 6))
    ]
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("algo-seed-") for name in names)
    assert sweep({"lr": [0.1, 0.2]}, algo="taco").name.startswith("taco-lr-")
    assert sweep({"lr": [0.1, 0.2]}, "v1.5", algo="taco").name == "v1.5"


@pytest.mark.parametrize(
    ("swept", "fixed", "expected"),
    [
        ({"lr": ["0.1", "x"]}, {}, "run algo=fedavg, lr=x: invalid value 'x' for lr"),
        ({"lr": ["0.1", "1e-1"]}, {}, "lr is given the value '0.1' twice"),
        ({"lr": []}, {}, "lr is given no value"),
        ({}, {}, "A sweep needs several values"),
        ({"results-dir": ["a", "b"]}, {}, "'results-dir' takes one value"),
        ({"lr": [1, 2]}, {"taco.kappa": 1}, "'taco.kappa' is a setting of taco"),
        ({"partition": ["iid", "groups"]}, {"dirichlet-alpha": 0.1}, "has no effect with"),
        ({"lr": [1, 2]}, {"num-round": 1}, "Unknown key 'num-round'. Did you mean 'num-rounds'"),
        ({"algo": ["fedavg", "fedavgg"]}, {}, "fedavgg"),
        ({"num-rounds": ["1", "0.5"]}, {}, "invalid value '0.5' for num-rounds"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(
    swept: dict[str, list[Any]], fixed: dict[str, Any], expected: str
) -> None:
    shared = fixed if "algo" in swept else fixed | {"algo": "fedavg"}
    with pytest.raises(UserError) as refusal:
        make_sweep(swept, shared, [*swept, *fixed], "", ["run"])
    assert expected in str(refusal.value)
