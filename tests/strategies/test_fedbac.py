"""FedBaC's server by hand and by property."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsuite.core.messages import Result
from strategies.base import Round, RunInfo
from strategies.fedbac import FedBac, FedBacParams, consensus_weights, couplings, spearman
from strategies.replies import check_update


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


def current(clients: int = 3, **params: Any) -> FedBac:
    """A server that compares with a momentum of its own, beta 0: this round's mean by samples."""
    info = RunInfo(num_clients=clients, client_sizes=dict.fromkeys(range(clients), 1), seed=0)
    settings: dict[str, Any] = {"beta": 0.0, "reference": "current", "score_clients": False}
    strategy = FedBac(info, FedBacParams(**(settings | params)))
    strategy.model = np.zeros(2, np.float32)
    return strategy


def play(
    strategy: FedBac,
    updates: list[list[float]],
    number: int = 1,
    clients: list[int] | None = None,
    samples: list[float] | None = None,
) -> Round:
    count = len(updates)
    this_round = Round(
        number=number,
        model=strategy.model,
        clients=clients or list(range(count)),
        arrays={"update": np.array(updates, np.float32)},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.array(samples or [1.0] * count),
        num_steps=np.ones(count),
        lr=0.1,
        metrics=[{"consensus": 0.5, "reliability": 0.5, "accuracy": 0.5}] * count,
    )
    strategy.model = strategy.aggregate(this_round)
    return this_round


def test_steadiness_is_over_each_clients_own_cosines() -> None:
    """Clients 1 and 2 of three send (3, 3), (3, -3): mean (3, 0), both cosines 1/sqrt 2.

    Then all send (0, 4), (0, 4), (0, -2): mean (0, 2), cosines 1, 1, -1. Client 1's variance over
    0.707107 and 1 is 0.292893^2/4 = 0.021447, client 2's over 0.707107 and -1 is 1.707107^2/4;
    client 0 has one value, so none. That one entry of the mean is zero does not matter.
    """
    strategy = current(alpha=2.0, floor=0.0)
    first = play(strategy, [[3, 3], [3, -3]], clients=[1, 2])
    np.testing.assert_allclose(first.per_client["cosine"], [np.sqrt(0.5)] * 2)
    np.testing.assert_allclose(first.per_client["reliability"], [1, 1])
    second = play(strategy, [[0, 4], [0, 4], [0, -2]], number=2)
    np.testing.assert_allclose(second.per_client["cosine"], [1, 1, -1])
    expected = [1, np.exp(-2 * 0.0214466), np.exp(-2 * (np.sqrt(0.5) + 1) ** 2 / 4)]
    np.testing.assert_allclose(second.per_client["reliability"], expected, rtol=1e-5)
    np.testing.assert_allclose(second.per_client["consensus"], [1, 1, 0])
    weight = expected[1] / (1 + expected[1])
    np.testing.assert_allclose(second.per_client["weight"], [1 - weight, weight, 0], rtol=1e-5)
    assert strategy.histories[:, -1, 0].tolist() == [2, 2, 2]
    assert strategy.histories[:, -2, 0].tolist() == [0, 1, 1]


@pytest.mark.parametrize(("window", "variance"), [("values", 0.0), ("rounds", 1.0)])
def test_the_window_on_the_server_by_hand(window: str, variance: float) -> None:
    """H = 1: by values the last cosine alone, by rounds those of the last round and this.

    Against the mean in round 1 (cosine -1) and with it in round 2 (cosine 1): variance 1.
    """
    strategy = current(2, history=1, window=window)
    play(strategy, [[3, 0], [-1, 0]])
    this_round = play(strategy, [[3, 0], [1, 0]], number=2)
    np.testing.assert_allclose(this_round.per_client["reliability"], [1, np.exp(-variance)])
    this_round = play(strategy, [[3, 0], [1, 0]], number=4)
    np.testing.assert_allclose(this_round.per_client["reliability"], [1, 1])


def test_without_any_reference_nobody_agrees_and_nothing_is_remembered() -> None:
    """(3, 0) of one sample and (-1, 0) of three cancel: weights by samples, and no floor."""
    strategy = current(2)
    this_round = play(strategy, [[3, 0], [-1, 0]], samples=[1, 3])
    np.testing.assert_allclose(this_round.per_client["weight"], [0.25, 0.75])
    assert this_round.per_client["consensus"].tolist() == [0, 0]
    assert this_round.per_client["reliability"].tolist() == [1, 1]
    assert not strategy.histories.any() and not strategy.momentum.any()


@pytest.mark.parametrize("scored", [True, False])
def test_how_scores_go_with_weights_is_recorded_if_clients_score(scored: bool) -> None:
    this_round = play(current(2, score_clients=scored), [[3, 0], [1, 0]])
    assert ("fairness_gap" in this_round.scalars) == scored


def test_a_score_may_be_one_and_the_rounding_beyond_it() -> None:
    def check(value: float) -> str:
        scores = dict.fromkeys(FedBac.needs_metrics, value)
        return check_update(Result(0, {}, {"num-examples": 1, **scores}), {}, (), FedBac.limits)

    assert check(0.0) == check(1.0) == check(1.0 + 1e-6) == ""
    assert "for consensus" in check(1.0 + 1.5e-6) and "for consensus" in check(-1e-9)


def test_the_servers_rate_scales_the_move_and_not_the_momentum() -> None:
    """Half of the mean (2, 0) of (3, 0) and (1, 0)."""
    strategy = current(2)
    strategy.info = dataclasses.replace(strategy.info, server_lr=0.5)
    play(strategy, [[3, 0], [1, 0]])
    assert strategy.model.tolist() == [1, 0] and strategy.momentum.tolist() == [2, 0]
