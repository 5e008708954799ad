"""FedA4's equations by hand and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsuite.core.vector import Doubles, Vector
from strategies.base import Round, RunInfo
from strategies.feda4 import (
    FedA4,
    FedA4Params,
    align,
    anti_bias_weights,
    bias_penalty,
    concentration,
    direction,
    path_statistics,
)


def test_concentration_by_hand() -> None:
    """Uniform: 0. One class: 1. (1/2, 1/2, 0, 0): 1 - log 2 / log 4 = 1/2."""
    probs = np.array([[0.25] * 4, [1, 0, 0, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(concentration(probs), [0, 1, 0.5], atol=1e-12)


def test_weights_by_hand() -> None:
    """Phi (0, 0.5): trust 1 and 0.5, weights 2/3 and 1/3. All collapsed: uniform."""
    np.testing.assert_allclose(anti_bias_weights(np.array([0.0, 0.5])), [2 / 3, 1 / 3])
    np.testing.assert_allclose(anti_bias_weights(np.array([1.0, 1.0])), [0.5, 0.5])


def test_penalty_by_hand() -> None:
    """Accuracies 0.2 and 0.6, mean 0.4: exp(-2 * 0.04) for both."""
    np.testing.assert_allclose(bias_penalty(np.array([0.2, 0.6]), 2.0), [math.exp(-0.08)] * 2)


def test_alignment_and_direction_by_hand() -> None:
    """Theta 0.75: a quarter of itself and three quarters of the mean."""
    rows, mean = np.array([[4, 0], [0, 4]], np.float32), np.array([2, 2], np.float32)
    assert np.allclose(align(rows, mean, 0.75), [[2.5, 1.5], [1.5, 2.5]])
    biased = np.array([True, False])
    assert direction(biased).tolist() == [-1, 1]
    assert direction(biased, printed=True).tolist() == [1, -1]


def test_path_statistics_by_hand() -> None:
    """Steps (3,0) and (0,4): length 7, a right angle. One step has nothing to turn from."""
    lengths, turns = path_statistics(np.array([[[3, 0], [0, 4]]], np.float32))
    assert (lengths[0], turns[0]) == (7.0, 0.0)
    assert path_statistics(np.array([[[3, 4]]], np.float32))[1][0] == 1.0


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(2, 6)),
        elements=st.floats(0, 1).filter(lambda x: x == 0 or x > 1e-12),
    ).filter(lambda a: (a.sum(1) > 0).all())
)
def test_phi_and_weights_are_what_they_claim(raw: Doubles) -> None:
    phi = concentration(raw / raw.sum(1, keepdims=True))
    weights = anti_bias_weights(phi)
    assert ((phi >= 0) & (phi <= 1)).all()
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    assert ((phi[:, None] <= phi) <= (weights[:, None] >= weights - 1e-12)).all()


PROBE = {1.0: (np.array([0.5, 0.5]), 0.5), 5.0: (np.array([1.0, 0.0]), 0.5)}


def play(**params: object) -> tuple[Vector, Round]:
    """Two clients from w = 0, E = 1: v = (1, 0), and v = (5, 0) whose predictions collapsed."""
    info = RunInfo(
        num_clients=2,
        client_sizes={0: 1, 1: 3},
        seed=0,
        probe=lambda model, buffers: PROBE[float(model[0])],
    )
    strategy = FedA4(info, FedA4Params(**params))  # type: ignore[arg-type]
    strategy.model = np.zeros(2, np.float32)
    updates = np.array([[1, 0], [5, 0]], np.float32)
    this_round = Round(
        number=1,
        model=strategy.model,
        clients=[0, 1],
        arrays={"update": updates, "trajectory": updates},
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.array([1.0, 3.0]),
        num_steps=np.ones(2),
        lr=0.1,
    )
    return strategy.aggregate(this_round), this_round


def test_phase_one_by_hand() -> None:
    """Phi (0, 1): the collapsed client gets nothing, w = 1."""
    model, this_round = play(adaptation=False)
    assert np.allclose(model, [1, 0])
    assert this_round.per_client["phi"].tolist() == [0.0, 1.0]


def test_both_phases_by_hand() -> None:
    """Gbar = 3, theta 0.5: g' = (2, 4). Weights (1, 0), equal accuracy, client 0 reliable.

    w = 1 + 0.1 * 1 * 1 * 2 = 1.2; with the printed sign 0.8.
    """
    assert np.allclose(play(eta=0.1, theta=0.5)[0], [1.2, 0])
    assert np.allclose(play(eta=0.1, theta=0.5, direction="printed")[0], [0.8, 0])


def test_adaptation_alone_by_hand() -> None:
    """Sample weights (1/4, 3/4): w_half = 4. Signs (+1, -1), g' = (2, 4).

    4 + 0.1 (0.25 * 2 - 0.75 * 4) = 4 - 0.25 = 3.75.
    """
    assert np.allclose(play(weights=False, eta=0.1, theta=0.5)[0], [3.75, 0])


def test_neither_is_fedavg() -> None:
    assert np.allclose(play(weights=False, adaptation=False)[0], [4, 0])


def test_a_low_similarity_marks_a_client_too() -> None:
    _, this_round = play(tau_sim=1.0)
    assert this_round.per_client["biased"].tolist() == [True, True]
