"""Whom TACO suspects and expels, at the limits of its rules, and what it writes down of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounds import play, strategy_of

from strategies.taco import Taco, TacoParams, is_replay, normalised, replay_distance

SAME = [[1.0, 0.0]] * 4  # of four clients with the same update each has alpha (1 - 1/4) 1 = 3/4


def taco(least: int = 1, **params: Any) -> Taco:
    settings = {"detector": "printed", "lambda_": 1} | params
    return strategy_of(Taco, 4, {"min_train_clients": least}, **settings)


@pytest.mark.parametrize(("kappa", "strikes"), [(0.75, 1), (0.76, 0)])
def test_a_coefficient_of_kappa_is_suspicious(kappa: float, strikes: int) -> None:
    strategy = taco(kappa=kappa)
    this_round = play(strategy, SAME)
    assert this_round.per_client["strikes"].tolist() == [strikes] * 4
    assert this_round.scalars["mean_alpha"] == pytest.approx(0.75)


@pytest.mark.parametrize(("least", "expelled"), [(1, {0, 1, 2}), (3, {0}), (4, set()), (5, set())])
def test_as_many_stay_as_a_round_needs(least: int, expelled: set[int]) -> None:
    strategy = taco(least)
    play(strategy, SAME)
    assert strategy.expelled == expelled


def test_those_expelled_before_are_not_present() -> None:
    """Of four two may go; in the next round none of the two that are left."""
    strategy = taco(2, kappa=0.5)
    play(strategy, SAME)
    assert strategy.expelled == {0, 1}
    play(strategy, SAME[:2], clients=[2, 3], number=2)
    assert strategy.expelled == {0, 1} and strategy.strikes.tolist() == [1, 1, 2, 2]


def test_the_first_of_a_rounds_clients_stays_where_all_are_guilty() -> None:
    """Alpha is 1/2 for two. Without the first there would be nobody to average."""
    strategy = taco(kappa=0.5)
    this_round = play(strategy, [[1.0, 0.0], [1.0, 0.0]], clients=[1, 2])
    assert strategy.expelled == {2}
    assert this_round.per_client["weight"].tolist() == [1, 0]
    assert strategy.model.tolist() == [1, 0]


def test_equal_to_the_limit_is_a_replay() -> None:
    """By angle alone (all exactly along the gradient, half its length away), by distance alone
    (all at no distance), and at the least cosine.
    """
    ones, half, none = np.ones(3), np.full(3, 0.5), np.zeros(3)
    assert is_replay(ones, half, 0.9).all()
    assert is_replay(np.full(3, 0.95), none, 0.9).all()
    assert is_replay(np.full(3, 0.9), np.array([0.0, 1, 1]), 0.9).tolist() == [True, False, False]


def test_what_is_written_down_of_each_client() -> None:
    """Updates (3, 0) and (0, 4) with the mean (1.5, 2): cosines 0.6 and 0.8, lengths 3 and 4."""
    seen = play(strategy_of(Taco), [[3, 0], [0, 4]]).per_client
    np.testing.assert_allclose(seen["cosine"], [0.6, 0.8])
    np.testing.assert_allclose(seen["norm"], [3, 4])
    np.testing.assert_allclose(seen["alpha"], [4 / 7 * 0.6, 3 / 7 * 0.8])
    assert seen["replay"].tolist() == [0, 0] and seen["replay_distance"].tolist() == [1, 1]


def test_z_is_refused_for_a_model_with_statistics() -> None:
    extrapolated = TacoParams(output="z")
    assert "invalid value 'z' for taco.output" in Taco.misfit(extrapolated, True)
    assert Taco.misfit(extrapolated, False) == Taco.misfit(TacoParams(), True) == ""


def test_an_expelled_client_has_no_share_of_the_samples_either() -> None:
    """Coefficients (1 - 1/8) cos for (1, 0) and less for the others: client 0 alone is expelled.

    All along (1, 0): shares 1/8, 3/8, 4/8, so alpha 0.875, 0.625, 0.5; the others' mean is 3.5.
    """
    strategy = strategy_of(Taco, 3, detector="printed", lambda_=1, kappa=0.7, aggregation=False)
    this_round = play(strategy, [[1, 0], [3, 0], [4, 0]], steps=[9.0, 2.0, 4.0])
    assert strategy.expelled == {0}
    np.testing.assert_allclose(this_round.per_client["weight"], [0, 0.5, 0.5])
    np.testing.assert_allclose(strategy.model, [3.5, 0])
    np.testing.assert_allclose(strategy.gradient, [-7, 0])  # over lr 1/2, whatever the steps


def test_small_numbers_are_weights_and_lengths_too() -> None:
    everybody = np.ones(2, dtype=bool)
    np.testing.assert_allclose(normalised(np.array([0.1, 0.3]), everybody), [0.25, 0.75])
    np.testing.assert_allclose(normalised(np.zeros(2), everybody), [0.5, 0.5])
    assert replay_distance(np.array([1.0]), np.array([0.25]), 0.5).tolist() == [0.5]
