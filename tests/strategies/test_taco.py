"""TACO's equations by hand and by property."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scripted import hosted

from fedsuite.core.vector import Matrix
from strategies.base import Round, RunInfo
from strategies.taco import (
    Taco,
    TacoParams,
    correction_coefficients,
    extrapolate,
    tailored_aggregate,
)

MATRICES = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-8, 8, width=32)
)


def test_coefficients_by_hand() -> None:
    """Deltas (3,0), (0,3), (3,3): lengths 3, 3, 3*sqrt2; mean (2,2).

    Cosines with the mean: 1/sqrt2, 1/sqrt2, 1. Shares: 3/(6+3 sqrt2) = 0.292893 twice, 0.414214.
    alpha = 0.707107 * 0.707107 = 0.5 twice, and 1 * 0.585786.
    """
    deltas = np.array([[3, 0], [0, 3], [3, 3]], np.float32)
    np.testing.assert_allclose(correction_coefficients(deltas), [0.5, 0.5, 0.585786], atol=1e-6)


def test_a_client_against_the_mean_has_coefficient_zero() -> None:
    """Mean of (4,0), (4,0), (-2,0) is (2,0); the third points the other way."""
    alpha = correction_coefficients(np.array([[4, 0], [4, 0], [-2, 0]], np.float32))
    np.testing.assert_allclose(alpha, [0.6, 0.6, 0.0], atol=1e-6)


def test_aggregate_by_hand() -> None:
    """Alpha (1, 3), K=2, lr=0.5: ((4,0) + 3 (0,4)) / (2 * 0.5 * 4) = (1, 3)."""
    deltas = np.array([[4, 0], [0, 4]], np.float32)
    assert np.allclose(tailored_aggregate(deltas, np.array([1.0, 3.0]), 2, 0.5), [1, 3])


def test_aggregate_scales_each_row_by_its_own_steps() -> None:
    """Equal alpha, steps 1 and 4, lr 1: ((4,0)/1 + (0,4)/4) / 2 = (2, 0.5)."""
    deltas = np.array([[4, 0], [0, 4]], np.float32)
    result = tailored_aggregate(deltas, np.ones(2), np.array([1.0, 4.0]), 1.0)
    assert np.allclose(result, [2, 0.5])


def test_all_coefficients_zero_give_the_plain_mean() -> None:
    deltas = np.array([[4, 0], [0, 4]], np.float32)
    assert np.allclose(tailored_aggregate(deltas, np.zeros(2), 1, 1.0), [2, 2])


def test_output_by_hand() -> None:
    """Z = 3 + 0.5 (3 - 1) = 4."""
    assert extrapolate(np.array([3.0], np.float32), np.array([1.0], np.float32), 0.5) == [4.0]


@given(MATRICES, st.sampled_from([1e-18, 1e-3, 7.0, 1e18]))
def test_coefficients_are_bounded_and_do_not_depend_on_scale(rows: Matrix, factor: float) -> None:
    alpha = correction_coefficients(rows)
    assert np.isfinite(alpha).all() and (alpha >= 0).all() and (alpha <= 1).all()
    scaled = (rows.astype(np.float64) * factor).astype(np.float32)
    if (np.abs(rows)[rows != 0] > 1e-3).all():
        np.testing.assert_allclose(correction_coefficients(scaled), alpha, atol=1e-4)


@given(MATRICES, st.randoms(use_true_random=False))
def test_permuting_clients_permutes_coefficients(rows: Matrix, draw: Random) -> None:
    order = list(range(len(rows)))
    draw.shuffle(order)
    np.testing.assert_allclose(
        correction_coefficients(rows[order]), correction_coefficients(rows)[order], atol=1e-6
    )


def taco(clients: int = 2, **params: object) -> Taco:
    info = RunInfo(
        num_clients=clients, client_sizes=dict.fromkeys(range(clients), 1), seed=0, num_rounds=10
    )
    strategy = Taco(info, TacoParams(**params))  # type: ignore[arg-type]
    strategy.model = np.zeros(2, np.float32)
    return strategy


def play(
    strategy: Taco,
    deltas: list[list[float]],
    steps: float | list[float] = 2.0,
    lr: float = 0.5,
) -> Round:
    """Let clients send ``-Delta_i``."""
    count = len(deltas)
    this_round = Round(
        number=1,
        model=strategy.model,
        clients=list(range(count)),
        arrays={"update": -np.array(deltas, np.float32)},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.ones(count),
        num_steps=np.broadcast_to(np.array(steps, np.float64), count).copy(),
        lr=lr,
    )
    strategy.model = strategy.aggregate(this_round)
    return this_round


@pytest.mark.parametrize(("units", "sent"), [("round", [3.0, 3.0]), ("step", [1.5, 1.5])])
def test_a_round_by_hand(units: str, sent: list[float]) -> None:
    """Deltas (3,0) and (0,3), K=2, lr=0.5. Equal alpha = (1 - 1/2)/sqrt2 = 0.353553.

    Eq. 9: (1.5, 1.5)/(2*0.5) = (1.5, 1.5) a step, (3, 3) a round. Server step K lr = 1: w = -1.5.
    """
    strategy = taco(gradient_units=units)
    play(strategy, [[3, 0], [0, 3]])
    assert np.allclose(strategy.model, [-1.5, -1.5])
    assert np.allclose(strategy.broadcast()["global_gradient"], sent)
    assert strategy.instruction(0).config["alpha"] == pytest.approx(0.353553, abs=1e-6)


def test_without_both_ideas_it_is_the_plain_mean_also_with_unequal_steps() -> None:
    strategy = taco(correction=False, aggregation=False)
    play(strategy, [[4, 0], [0, 2]], steps=[1.0, 7.0])
    assert np.allclose(strategy.model, [-2, -1])
    assert np.array_equal(strategy.result(), strategy.model)


def test_the_momentum_of_the_output_follows_the_units() -> None:
    """Gamma = 1/K: one whole round in round units, 1/K of a step otherwise."""
    for units, unit in (("round", 1.0), ("step", 0.5)):
        strategy = taco(gradient_units=units)
        play(strategy, [[3, 0], [0, 3]])
        assert strategy.momentum_unit == pytest.approx(unit)
        factor = unit * (1 - 0.353553)
        assert np.allclose(strategy.result(), np.array([-1.5, -1.5]) * (1 + factor), atol=1e-5)


def test_a_replayed_gradient_is_a_strike_and_strikes_expel() -> None:
    """Client 3 sends what it was sent, again and again; 10 rounds give lambda = 2."""
    strategy = taco(clients=4)
    honest = [[3.0, 0.1], [3.0, -0.1], [2.9, 0.0]]
    play(strategy, [*honest, [0.0, 0.0]])
    assert strategy.strikes.tolist() == [0, 0, 0, 0]
    replayed = (strategy.gradient * 0.5).tolist()
    play(strategy, [[3.0, 3.0], [3.0, -3.0], [2.9, 0.0], replayed])
    assert strategy.strikes[3] == 1 and not strategy.expelled
    before = strategy.model.copy()
    this_round = play(strategy, [[3.0, 3.0], [3.0, -3.0], [0.5, 2.0], replayed])
    assert 3 in strategy.expelled
    assert this_round.per_client["weight"][3] == 0.0
    assert hosted(strategy).sample(4) == [c for c in range(4) if c not in strategy.expelled]
    assert not np.array_equal(before, strategy.model)


def test_the_printed_detector_needs_the_coefficient_alone() -> None:
    """Four equal clients: alpha = 3/4 >= 0.6 for all in the first round already."""
    printed, guarded = taco(clients=4, detector="printed"), taco(clients=4)
    for strategy in (printed, guarded):
        play(strategy, [[1.0, 0.0]] * 4)
    assert printed.strikes.tolist() == [1, 1, 1, 1]
    assert guarded.strikes.tolist() == [0, 0, 0, 0]


def test_never_below_the_fewest_clients() -> None:
    strategy = taco(clients=4, detector="printed", lambda_=1)
    play(strategy, [[1.0, 0.0]] * 4)
    assert len(strategy.expelled) == 3 and np.isfinite(strategy.model).all()


def test_state_survives() -> None:
    strategy = taco(clients=3)
    play(strategy, [[3, 0], [0, 3], [1, 1]])
    again = taco(clients=3)
    again.model = strategy.model
    again.load_state(strategy.state())
    for one in (strategy, again):
        play(one, [[1, 0], [0, 3], [1, 2]])
    assert np.array_equal(strategy.model, again.model)
    assert np.array_equal(strategy.gradient, again.gradient)
    assert np.array_equal(strategy.result(), again.result())


def test_all_zero_updates_and_a_single_client() -> None:
    strategy = taco(clients=1)
    play(strategy, [[0.0, 0.0]])
    assert np.array_equal(strategy.model, [0, 0])
    play(strategy, [[2.0, 0.0]])
    assert np.allclose(strategy.model, [-2, 0])
