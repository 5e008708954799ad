"""FedADW's server by hand and by property."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedGrid, hosted, reply_with, run_info

from fedsuite.core.messages import Result, write_arrays
from strategies.base import Round, RunInfo
from strategies.fedadw import FedAdw, FedAdwParams, discrepancy_weights
from strategies.replies import check_update


def test_weights_by_hand() -> None:
    """Shares (1/4, 3/4), d (0, 1), x 0.5, y 0.1: (0.35, 0.35), so a half each."""
    weights = discrepancy_weights(np.array([1, 3]), np.array([0, 1]), 0.5, 0.1)
    np.testing.assert_allclose(weights, [0.5, 0.5])


def test_a_negative_weight_is_zero_and_all_zero_means_by_samples() -> None:
    weights = discrepancy_weights(np.array([1, 1]), np.array([0, 9]), 0.5, 0.1)
    np.testing.assert_allclose(weights, [1, 0])
    fallback = discrepancy_weights(np.array([1, 3]), np.array([9, 9]), 0.5, 0.1)
    np.testing.assert_allclose(fallback, [0.25, 0.75])


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 5)), min_size=1, max_size=9),
    st.floats(0, 3),
    st.floats(0, 1),
)
def test_weights_are_shares(rows: list[tuple[int, float]], x: float, y: float) -> None:
    n, d = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    weights = discrepancy_weights(n, d, x, y)
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(discrepancy_weights(n[::-1], d[::-1], x, y), weights[::-1])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 9 / 7),
        ({"weights": "samples"}, 2.0),
        ({"normalise_discrepancy": False}, 1.0),
        ({"discrepancy_sign": "reward"}, (0.6 + 3 * 1.1) / 1.7),
    ],
)
@pytest.mark.parametrize("largest", [4.0, 0.25])
def test_a_round_by_hand(params: dict[str, Any], expected: float, largest: float) -> None:
    """Equal samples, updates 1 and 3, discrepancies 0 and 4 (or a quarter, where they are scaled).

    Divided by their sum they are 0 and 1: weights 0.6 and 0.1, that is 6/7 and 1/7: 9/7.
    As they are, 0.5 - 2 + 0.1 < 0: the second has no weight. By samples the mean is 2.
    Rewarded, the weights are 0.6 and 1.1 of 1.7.
    """
    if "normalise_discrepancy" in params:
        largest = 4.0
    strategy = FedAdw(
        RunInfo(num_clients=2, client_sizes={0: 1, 1: 1}, seed=0), FedAdwParams(**params)
    )
    model = strategy.aggregate(
        Round(
            number=1,
            model=np.zeros(1, np.float32),
            clients=[0, 1],
            arrays={"update": np.array([[1], [3]], np.float32)},
            buffers=np.zeros((2, 0), np.float32),
            num_examples=np.ones(2),
            num_steps=np.ones(2),
            lr=0.1,
            metrics=[{"discrepancy": 0.0}, {"discrepancy": largest}],
        )
    )
    assert model[0] == pytest.approx(expected)


SHAPES = {
    "stem.weight": (5, 1),
    "conv.weight": (2, 1),
    "norm.weight": (3,),
    "norm.bias": (3,),
    "fc.weight": (1, 4),
}


def mixing(sent: list[list[float]]) -> tuple[FedAdw, Round]:
    """A round in which clients 0 and 2 of three send the weights of the layer below fc and fc."""
    info = RunInfo(num_clients=3, client_sizes={0: 1, 1: 1, 2: 1}, seed=0, shapes=SHAPES)
    strategy = FedAdw(info, FedAdwParams(send_weights=True))
    strategy.model = np.zeros(17, np.float32)
    this_round = Round(
        number=1,
        model=strategy.model,
        clients=[0, 2],
        arrays={
            "update": np.zeros((2, 17), np.float32),
            "ala_weights": np.array(sent, np.float32),
        },
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.ones(2),
        num_steps=np.ones(2),
        lr=0.1,
        metrics=[{"discrepancy": 0.0}, {"discrepancy": 0.0}],
    )
    strategy.aggregate(this_round)
    return strategy, this_round


def test_the_last_mixing_weights_are_kept_and_their_means_recorded() -> None:
    """Conv has two entries and takes the six of the norm with it, fc has four; the stem's five
    entries, the lowest of three layers, are not among them.
    """
    rows = [[0.5] * 8 + [1.0, 1.0, 0.0, 0.0], [1.0] * 8 + [0.0] * 4]
    strategy, this_round = mixing(rows)
    assert strategy.lengths() == {"update": 17, "ala_weights": 12}
    assert this_round.scalars == {"ala_conv": 0.75, "ala_fc": 0.25}
    assert this_round.per_client["ala_fc"].tolist() == [0.5, 0.0]
    assert strategy.ala_weights.tolist() == [rows[0], [1.0] * 12, rows[1]]
    again = FedAdw(strategy.info, strategy.params)
    again.load_state(strategy.state())
    assert np.array_equal(again.ala_weights, strategy.ala_weights)


def test_the_last_mixing_weights_are_a_file_of_the_run() -> None:
    """Client 1 has sent none: its entries are one, the global model's."""
    strategy, _ = mixing([[0.5] * 8 + [1.0, 1.0, 0.0, 0.0], [1.0] * 8 + [0.0] * 4])
    weights = strategy.kept_files()["mixing-weights"]
    assert weights["conv"].tolist() == [[0.5] * 8, [1.0] * 8, [1.0] * 8]
    assert weights["fc"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert FedAdw(strategy.info).kept_files() == {}


def test_only_the_top_layers_weights_are_expected() -> None:
    info = RunInfo(num_clients=3, client_sizes={}, seed=0, shapes=SHAPES)
    strategy = FedAdw(info, FedAdwParams(send_weights=True, ala_layers=1))
    assert strategy.lengths()["ala_weights"] == 4
    assert "ala_weights" not in FedAdw(info).lengths()


def test_where_all_classes_are_even_only_the_offset_counts() -> None:
    """One and three samples, no discrepancy: 0.25 + 0.1 and 0.75 + 0.1 of 1.2."""
    strategy = FedAdw(RunInfo(num_clients=2, client_sizes={0: 1, 1: 3}, seed=0))
    this_round = Round(
        number=1,
        model=np.zeros(1, np.float32),
        clients=[0, 1],
        arrays={"update": np.zeros((2, 1), np.float32)},
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.array([1.0, 3.0]),
        num_steps=np.ones(2),
        lr=0.1,
        metrics=[{"discrepancy": 0.0}] * 2,
    )
    strategy.aggregate(this_round)
    np.testing.assert_allclose(this_round.per_client["weight"], [0.35 / 1.2, 0.85 / 1.2])


def test_the_global_models_accuracy_is_over_all_clients_rows() -> None:
    """1 of 2, 3 of 4 and 0 of 2 rows: 4 of 8; whoever does not say is not counted."""
    right = {0: (1, 2), 1: (3, 4), 2: (0, 2)}
    answers = {
        c: Result(c, {}, {"num-examples": n, "correct": 0, "global-correct": k})
        for c, (k, n) in right.items()
    }
    arrays = write_arrays({"model": np.zeros(2, np.float32)})
    for changed, expected in (({}, 0.5), ({1: Result(1, error="no")}, 0.25)):
        strategy = hosted(FedAdw(run_info(personal_eval=True)))
        grid = ScriptedGrid(reply_with(answers | changed))
        messages = list(strategy.configure_evaluate(1, arrays, ConfigRecord(), grid))
        metrics = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
        assert metrics is not None and metrics["personal-mean"] == 0
        assert strategy.round_record.scalars["personal_global_accuracy"] == expected
    silent = {c: Result(c, {}, {"num-examples": 1, "correct": 0}) for c in range(3)}
    strategy = hosted(FedAdw(run_info(personal_eval=True)))
    grid = ScriptedGrid(reply_with(silent))
    messages = list(strategy.configure_evaluate(1, arrays, ConfigRecord(), grid))
    strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    assert "personal_global_accuracy" not in strategy.round_record.scalars


def test_a_discrepancy_is_from_none_to_a_hundred() -> None:
    def check(value: float) -> str:
        sent = Result(0, {}, {"num-examples": 1, "discrepancy": value})
        return check_update(sent, {}, (), FedAdw.limits)

    assert check(0.0) == check(100.0) == "" and check(-0.1) and check(100.5)
