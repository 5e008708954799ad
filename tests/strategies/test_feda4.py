"""FedA4's equations by hand and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsuite.config import parse
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
    """Phi (0, 0.5): trust 1 and 0.5, weights 2/3 and 1/3; so are they of less trust in the same
    ratio. All collapsed: uniform.
    """
    np.testing.assert_allclose(anti_bias_weights(np.array([0.0, 0.5])), [2 / 3, 1 / 3])
    np.testing.assert_allclose(anti_bias_weights(np.array([0.5, 0.75])), [2 / 3, 1 / 3])
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


# Two epochs: client 0 goes (2, 0) and (0, 2), client 1 goes (4, 0) and (2, 0).
PATHS = np.array([[2, 0, 0, 2], [4, 0, 2, 0]], np.float32)
ENDS = np.array([[2, 2], [6, 0]], np.float32)
SCORES = {2.0: ([0.25] * 4, 0.9), 6.0: ([0.5, 0.5, 0.0, 0.0], 0.1)}


def play_two_epochs(
    scores: dict[float, tuple[list[float], float]] = SCORES, **params: object
) -> tuple[Vector, Round]:
    def probe(model: Vector, buffers: Vector) -> tuple[Doubles, float]:
        probabilities, accuracy = scores[float(model[0])]
        return np.array(probabilities), accuracy

    sizes = {0: 1, 1: 1}
    info = RunInfo(num_clients=2, client_sizes=sizes, seed=0, local_epochs=2, probe=probe)
    strategy = FedA4(info, FedA4Params(**params))  # type: ignore[arg-type]
    strategy.model = np.zeros(2, np.float32)
    compact = params.get("trajectory") == "compact"
    arrays = {"update": ENDS} | ({} if compact else {"trajectory": PATHS})
    assert strategy.lengths() == {name: rows.shape[1] for name, rows in arrays.items()}
    this_round = Round(
        number=1,
        model=strategy.model,
        clients=[0, 1],
        arrays=arrays,
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.ones(2),
        num_steps=np.ones(2),
        lr=0.1,
    )
    return strategy.aggregate(this_round), this_round


@pytest.mark.parametrize("trajectory", ["full", "compact"])
def test_two_epochs_by_hand(trajectory: str) -> None:
    """Mean changes g = (1, 1) and (3, 0), gbar = (2, 1/2); theta 1/4: g' = (1.25, 0.875) and
    (2.75, 0.125). Phi (0, 1/2): weights 2/3, 1/3, and the second is biased, just at tau_conc.

    Accuracies 0.9 and 0.1 are 0.4 off their mean: with beta = ln 2 / 0.16 both penalties are 1/2.
    w = 2/3 (2, 2) + 1/3 (6, 0) + 0.6 (1/3 (1.25, 0.875) - 1/6 (2.75, 0.125))
    = (3.333333 - 0.025, 1.333333 + 0.1625). The sum of the changes gives the same as their path.
    """
    beta = math.log(2) / 0.16
    model, this_round = play_two_epochs(
        trajectory=trajectory, eta=0.6, theta=0.25, tau_conc=0.5, beta=beta
    )
    np.testing.assert_allclose(model, [3.308333, 1.495833], atol=1e-5)
    seen = this_round.per_client
    assert seen["biased"].tolist() == [False, True]
    np.testing.assert_allclose(seen["penalty"], [0.5, 0.5])
    np.testing.assert_allclose(seen["similarity"][0], 2.5 / math.sqrt(2 * 4.25))
    if trajectory == "full":
        assert seen["path_length"].tolist() == [4, 6] and seen["turning"].tolist() == [0, 1]
    else:
        assert "path_length" not in seen


def test_a_client_whose_predictions_are_no_numbers_is_all_bias() -> None:
    """Phi 1 and accuracy 0, whatever the probe says of it: no weight, and the mean is 0.45."""
    broken = SCORES | {6.0: ([math.nan, 0.5, 0.25, 0.25], 0.8)}
    model, this_round = play_two_epochs(broken, eta=0.0)
    assert np.array_equal(model, [2, 2])
    assert this_round.per_client["phi"].tolist() == [0, 1]
    assert this_round.per_client["probe_accuracy"].tolist() == [0.9, 0]
    np.testing.assert_allclose(this_round.per_client["penalty"], [math.exp(-(0.45**2))] * 2)


def test_turning_is_the_mean_over_successive_steps() -> None:
    """(1, 0), (0, 1), (0, 2), (0, -3): cosines 0, 1 and -1 have the mean 0; length 7."""
    paths = np.array([[[1, 0], [0, 1], [0, 2], [0, -3]], [[1, 0], [1, 0], [1, 0], [0, 1]]])
    lengths, turns = path_statistics(paths.astype(np.float32))
    assert lengths.tolist() == [7, 4] and turns.tolist() == [0, pytest.approx(2 / 3)]


def test_the_probe_set_has_a_row_per_class_unless_said_otherwise() -> None:
    assert parse({"algo": "feda4"}).probe_per_class == 1
    assert parse({"algo": "feda4", "probe-per-class": 3}).probe_per_class == 3
    assert parse({"algo": "fedavg"}).probe_per_class == 0
