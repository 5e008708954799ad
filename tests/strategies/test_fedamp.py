"""FedAMP's server by hand, by property, and at the size of a real network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsuite.core.vector import Matrix
from strategies.base import Round, RunInfo
from strategies.fedamp import (
    FedAmp,
    FedAmpParams,
    attention,
    cosine_attention,
    squared_distances,
)

SCALES = (0.0, 1e-18, 1.0, 1e18)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Rows of one to five clients, each with a magnitude of its own."""
    count, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    numbers = st.lists(st.floats(-1, 1, width=32), min_size=size, max_size=size)
    scales = st.sampled_from(SCALES).map(np.float32)
    return np.stack([np.array(draw(numbers), np.float32) * draw(scales) for _ in range(count)])


def received(updates: list[list[float]], clients: list[int], number: int = 1) -> Round:
    count = len(clients)
    return Round(
        number=number,
        model=np.array([10, 10], np.float32),
        clients=clients,
        arrays={"update": np.array(updates, np.float32)},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.ones(count),
        num_steps=np.ones(count),
        lr=0.1,
    )


def server(count: int = 4, **params: Any) -> FedAmp:
    sizes = dict.fromkeys(range(count), 1)
    info = RunInfo(num_clients=count, client_sizes=sizes, seed=0)
    strategy = FedAmp(info, FedAmpParams(**params))
    strategy.model, strategy.training_round = np.array([10, 10], np.float32), 2
    return strategy


def test_distances_by_hand() -> None:
    rows = np.array([[0, 0], [3, 4], [0, 1]], np.float32)
    assert squared_distances(rows).tolist() == [[0, 25, 1], [25, 0, 18], [1, 18, 0]]


def test_attention_by_hand() -> None:
    """Squared distances 1, 2 and 4 have the median 2: in its units 1/2, 1 and 2.

    With sigma 1, alpha 1 and three clients an other weighs exp(-x)/2.
    """
    weights = attention(np.array([[0.0, 1, 2], [1, 0, 4], [2, 4, 0]]), 1.0, 1.0)
    a, b, c = (math.exp(-x) / 2 for x in (0.5, 1, 2))
    expected = [[1 - a - b, a, b], [a, 1 - a - c, c], [b, c, 1 - b - c]]
    np.testing.assert_allclose(weights, expected)


def test_sigma_and_alpha_by_hand() -> None:
    """Two clients one median apart, sigma 2: alpha exp(-1/2)/2; at alpha 9 it would be more than
    all, and others take all.
    """
    distances = np.array([[0.0, 7], [7, 0]])
    assert attention(distances, 2.0, 1.0)[0, 1] == pytest.approx(math.exp(-0.5) / 2)
    assert attention(distances, 2.0, 9.0).tolist() == [[0, 1], [1, 0]]


def test_one_client_and_equal_ones() -> None:
    """One attends to itself; of two equal ones each takes the other's, which is its own."""
    assert attention(np.zeros((1, 1)), 1.0, 1.0).tolist() == [[1]]
    assert attention(np.zeros((2, 2)), 2.0, 1.0).tolist() == [[0.5, 0.5], [0.5, 0.5]]


@given(matrices(), st.floats(0.01, 100), st.floats(0.01, 100))
def test_weights_are_shares_at_any_magnitude(rows: Matrix, sigma: float, alpha: float) -> None:
    weights = attention(squared_distances(rows), sigma, alpha)
    assert np.isfinite(weights).all() and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    backward = attention(squared_distances(rows[::-1].copy()), sigma, alpha)
    np.testing.assert_allclose(backward[::-1, ::-1], weights, rtol=1e-9, atol=1e-12)


def test_attention_does_not_depend_on_the_scale_of_models() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    small, large = (attention(squared_distances(rows * f), 1.0, 1.0) for f in (1e-12, 1e12))
    np.testing.assert_allclose(small, large, rtol=1e-5)


def test_attention_lives_at_the_size_of_a_real_network() -> None:
    """582,026 parameters that differ by 0.03: squared distances near 1000, whose exp(-x) is 0.

    Two groups of five are 0.02 further apart: within a group attention is higher, across it is
    lower, and neither vanishes nor is it all the same.
    """
    draw = np.random.default_rng(0)
    centres = 0.02 * draw.standard_normal((2, 582_026), dtype=np.float32)
    rows = np.repeat(centres, 5, axis=0)
    rows += 0.03 / math.sqrt(2) * draw.standard_normal(rows.shape, dtype=np.float32)
    distances = squared_distances(rows)
    assert distances[0, 1] > 400 and math.exp(-distances[0, 1]) < 1e-100
    weights = attention(distances, 1.0, 1.0)
    others = weights[~np.eye(10, dtype=bool)]
    assert 0.02 < others.min() and others.max() < 0.08, "1/n is 0.1"
    assert 0.3 < np.diag(weights).min() and np.diag(weights).max() < 0.8
    assert weights[0, 1] > 1.3 * weights[0, 9]


def test_a_round_by_hand() -> None:
    """Models (10, 10) + (0, 0) and + (4, 0), one median apart: each weighs the other by 1/e.

    Cloud models: 10 + 4/e and 10 + 4 (1 - 1/e). Nobody else has a model, so none has a cloud.
    """
    strategy = server()
    this_round = received([[0, 0], [4, 0]], [0, 2])
    assert np.array_equal(strategy.aggregate(this_round), [10, 10])
    clouds = [strategy.instruction(client).arrays["cloud"] for client in range(4)]
    np.testing.assert_allclose(clouds[0], [10 + 4 / math.e, 10], rtol=1e-6)
    np.testing.assert_allclose(clouds[2], [14 - 4 / math.e, 10], rtol=1e-6)
    assert clouds[1].size == clouds[3].size == 0
    np.testing.assert_allclose(this_round.per_client["self_attention"], 1 - 1 / math.e)
    assert this_round.scalars == {"mean_self_attention": pytest.approx(1 - 1 / math.e)}


def test_who_stays_away_is_remembered_and_state_survives() -> None:
    strategy = server()
    strategy.aggregate(received([[0, 0], [4, 0]], [0, 2]))
    strategy.aggregate(received([[2, 2]], [0], 2))
    again = server()
    again.load_state({name: np.copy(v) for name, v in strategy.state().items()})
    for client in range(4):
        expected = strategy.instruction(client).arrays["cloud"]
        assert np.array_equal(again.instruction(client).arrays["cloud"], expected)
    weight = math.exp(-1)
    np.testing.assert_allclose(
        strategy.instruction(0).arrays["cloud"], [12 + 2 * weight, 12 - 2 * weight], rtol=1e-6
    )


def test_cosine_attention_by_hand() -> None:
    """(2, 0), (0, 3), (1, 1): cosines 0, 1/sqrt 2 and 1/sqrt 2; lengths do not matter.

    With factor 2 and a half for oneself the first gives e^0 and e^sqrt 2 their shares of 1/2, the
    third its two others a quarter each.
    """
    models = np.array([[2, 0], [0, 3], [1, 1]], np.float32)
    near = math.exp(math.sqrt(2))
    a, b = 0.5 / (1 + near), 0.5 * near / (1 + near)
    expected = [[0.5, a, b], [a, 0.5, b], [0.25, 0.25, 0.5]]
    np.testing.assert_allclose(cosine_attention(models, 2.0, 0.5), expected, rtol=1e-6)


def test_the_own_model_weighs_one_nth_unless_said_otherwise() -> None:
    models = np.array([[2, 0], [0, 3], [1, 1], [-1, 0]], np.float32)
    weights = cosine_attention(models, 0.0)
    np.testing.assert_allclose(weights, np.full((4, 4), 0.25))
    assert cosine_attention(models, 25.0, 1.0).tolist() == np.eye(4).tolist()
    assert cosine_attention(models[:1], 25.0, 0.3).tolist() == [[1.0]]


@given(matrices(), st.floats(0, 1000), st.floats(0, 1))
def test_cosine_weights_are_shares_at_any_magnitude(
    rows: Matrix, sharpness: float, own: float
) -> None:
    weights = cosine_attention(rows, sharpness, own)
    assert np.isfinite(weights).all() and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)


def test_a_heuristic_round_by_hand() -> None:
    """Cosines are of models, not of updates: (10, 10) + (0, 0), + (-10, 0) and + (-10, -20) are
    (10, 10), (0, 10) and (0, -10), with cosines 1/sqrt 2, -1/sqrt 2 and -1. A quarter for oneself:
    the first has 3/4 to give, in the ratio e to 1/e for sharpness sqrt 2.
    """
    strategy = server(heuristic=True, sharpness=math.sqrt(2), self_weight=0.25)
    this_round = received([[0, 0], [-10, 0], [-10, -20]], [0, 1, 3])
    assert np.array_equal(strategy.aggregate(this_round), [10, 10])
    e = math.e
    up, down = 0.75 * e / (e + 1 / e), 0.75 / e / (e + 1 / e)
    cloud = strategy.instruction(0).arrays["cloud"]
    np.testing.assert_allclose(cloud, [2.5, 2.5 + 10 * up - 10 * down], rtol=1e-5)
    np.testing.assert_allclose(this_round.per_client["self_attention"], 0.25)
    assert strategy.instruction(2).arrays["cloud"].size == 0


def test_the_default_pull_is_a_tenth_and_by_distances() -> None:
    assert FedAmpParams().lam == 0.1 and not FedAmpParams().heuristic


def test_the_unit_is_the_median_over_pairs_that_differ() -> None:
    """Squared distances 0, 2 and 4: the unit is 3, the median of 2 and 4."""
    weights = attention(np.array([[0.0, 0, 2], [0, 0, 4], [2, 4, 0]]), 1.0, 1.0)
    a, b = math.exp(-2 / 3) / 2, math.exp(-4 / 3) / 2
    expected = [[0.5 - a, 0.5, a], [0.5, 0.5 - b, b], [a, b, 1 - a - b]]
    np.testing.assert_allclose(weights, expected)


def test_a_client_that_joins_attends_to_itself_alone() -> None:
    strategy = server(2)
    strategy.aggregate(received([[0, 0], [4, 0]], [0, 1]))
    before = strategy.attention.copy()
    strategy.grow(RunInfo(num_clients=3, client_sizes=dict.fromkeys(range(3), 1), seed=0))
    assert np.array_equal(strategy.attention[:2, :2], before)
    assert strategy.attention[2].tolist() == strategy.attention[:, 2].tolist() == [0, 0, 1]
    assert strategy.instruction(2).arrays["cloud"].size == 0
