"""FedBaC's server by hand and by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.base import Round, RunInfo
from strategies.fedbac import FedBac, FedBacParams, consensus_weights, couplings, spearman


def test_weights_by_hand() -> None:
    """R C = (0.5 * 1, 0.5 * 0.5, 0): 2/3, 1/3, 0. Nobody agrees: by samples."""
    weights = consensus_weights(np.array([1, 0.5, 0]), np.array([0.5, 0.5, 1]), np.ones(3))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 0])
    fallback = consensus_weights(np.zeros(2), np.ones(2), np.array([1, 3]))
    np.testing.assert_allclose(fallback, [0.25, 0.75])


def test_spearman_by_hand() -> None:
    """Same order 1, reversed -1, constant 0; ranks (1,2,3) and (1.5,1.5,3): 1.5/sqrt(3)."""
    a = np.array([1.0, 2.0, 3.0])
    assert spearman(a, a * 10) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(a, np.ones(3)) == 0.0
    assert spearman(a, np.array([5.0, 5.0, 9.0])) == pytest.approx(1.5 / np.sqrt(3.0))


def test_couplings_by_hand() -> None:
    found = couplings(np.array([0.2, 0.9]), np.array([0.1, 0.2]), np.array([0.7, 0.3]))
    assert found["fairness_gap"] == pytest.approx(0.7)
    assert found["client_accuracy"] == pytest.approx(0.55)
    assert (found["reliability_coupling"], found["contribution_coupling"]) == (1.0, -1.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(1, 99)), min_size=1, max_size=8
    )
)
def test_weights_are_shares(rows: list[tuple[float, float, int]]) -> None:
    c, r, n = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    weights = consensus_weights(c, r, n)
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(consensus_weights(c[::-1], r[::-1], n[::-1]), weights[::-1])


FEDERATION = RunInfo(num_clients=2, client_sizes={0: 1, 1: 1}, seed=0)


def after_two_rounds(params: FedBacParams) -> FedBac:
    """Updates (2,0) and (0,2), nobody agrees; then (4,0) and (0,-4), the first alone agrees."""
    strategy = FedBac(FEDERATION, params)
    strategy.model = np.zeros(2, np.float32)
    rounds = [([[2, 0], [0, 2]], [0.0, 0.0]), ([[4, 0], [0, -4]], [1.0, 0.0])]
    for number, (updates, agreement) in enumerate(rounds, start=1):
        metrics = [{"consensus": c, "reliability": 1.0, "accuracy": 0.5} for c in agreement]
        strategy.model = strategy.aggregate(
            Round(
                number=number,
                model=strategy.model,
                clients=[0, 1],
                arrays={"update": np.array(updates, np.float32)},
                buffers=np.zeros((2, 0), np.float32),
                num_examples=np.ones(2),
                num_steps=np.ones(2),
                lr=0.1,
                metrics=metrics,
            )
        )
    return strategy


def test_two_rounds_by_hand() -> None:
    """Beta 0.5. Round 1: nobody agrees with nothing, plain mean of (2,0) and (0,2) is (1,1);
    momentum (0.5, 0.5). Round 2: weights (1, 0): w = (1,1) + (4,0); momentum (0.25,0.25)+(2,0).
    """
    strategy = after_two_rounds(FedBacParams(beta=0.5))
    assert np.allclose(strategy.model, [5, 1])
    assert np.allclose(strategy.broadcast()["momentum"], [2.25, 0.25])
    again = FedBac(FEDERATION)
    again.load_state(strategy.state())
    assert np.array_equal(again.momentum, strategy.momentum)


def test_momentum_by_samples_by_hand() -> None:
    """As above, but round 2 feeds the momentum the plain mean (2, -2): (0.25,0.25) + (1,-1)."""
    strategy = after_two_rounds(FedBacParams(beta=0.5, momentum_by="samples"))
    assert np.allclose(strategy.model, [5, 1])
    assert np.allclose(strategy.broadcast()["momentum"], [1.25, -0.75])


def test_current_reference_by_hand() -> None:
    """Beta 0.5, floor 0.1, alpha 1; what clients claim about themselves does not matter.

    Round 1: the mean of (2,0) and (0,2) is (1,1), the momentum (0.5, 0.5): both cosines are
    1/sqrt(2), weights a half each: w = (1,1). Round 2: mean (2,-2), momentum (0.25,0.25) +
    (1,-1) = (1.25,-0.75). Cosine of (4,0): 1.25/sqrt(2.125) = 0.857493, of (0,-4): 0.514496.
    Variances (c - 0.707107)^2/4: 0.005654 and 0.009275. Products 0.852658 and 0.509746: weights
    0.625848, 0.374152. w = (1,1) + (2.503393, -1.496607).
    """
    strategy = after_two_rounds(FedBacParams(beta=0.5, reference="current"))
    np.testing.assert_allclose(strategy.model, [3.503393, -0.496607], atol=1e-5)
    np.testing.assert_allclose(strategy.momentum, [1.25, -0.75])
    again = FedBac(FEDERATION, strategy.params)
    again.load_state(strategy.state())
    assert np.array_equal(again.histories, strategy.histories)
    assert strategy.histories[0, -2:, 0].tolist() == [1, 2]


def test_a_client_against_the_current_reference_keeps_the_floor() -> None:
    """Updates 3 and -1: mean 1, beta 0: cosines 1 and -1; products 1 and 0.25: 3*0.8 - 0.2."""
    strategy = FedBac(FEDERATION, FedBacParams(beta=0.0, floor=0.25, reference="current"))
    strategy.model = np.zeros(1, np.float32)
    claims = [{"consensus": 0.0, "reliability": 1.0, "accuracy": 0.5}] * 2
    this_round = Round(
        number=1,
        model=strategy.model,
        clients=[0, 1],
        arrays={"update": np.array([[3], [-1]], np.float32)},
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.ones(2),
        num_steps=np.ones(2),
        lr=0.1,
        metrics=claims,
    )
    assert strategy.aggregate(this_round)[0] == pytest.approx(2.2)
    assert this_round.per_client["cosine"].tolist() == [1.0, -1.0]


def test_clients_hear_which_round_of_theirs_counted_last() -> None:
    strategy = FedBac(FEDERATION)
    assert strategy.instruction(1).config == {"counted": 0}
    strategy = after_two_rounds(FedBacParams())
    assert strategy.instruction(1).config == {"counted": 2}
    again = FedBac(FEDERATION)
    again.load_state(strategy.state())
    assert again.instruction(0).config == {"counted": 2}
