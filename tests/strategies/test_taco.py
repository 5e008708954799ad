"""TACO's equations by hand and by property."""

from __future__ import annotations

import dataclasses
import math
from random import Random

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scripted import ScriptedGrid, hosted, one_round, reply_with, result

from fedsuite.core.messages import read_instructions
from fedsuite.core.vector import Matrix
from strategies.base import Round, RunInfo
from strategies.taco import (
    Taco,
    TacoParams,
    correction_coefficients,
    extrapolate,
    is_replay,
    replay_distance,
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


def taco(clients: int = 2, rounds: int = 10, **params: object) -> Taco:
    sizes = dict.fromkeys(range(clients), 1)
    info = RunInfo(num_clients=clients, client_sizes=sizes, seed=0, num_rounds=rounds)
    strategy = Taco(info, TacoParams(**params))  # type: ignore[arg-type]
    strategy.model = np.zeros(2, np.float32)
    return strategy


def play(
    strategy: Taco,
    deltas: list[list[float]],
    steps: float | list[float] = 2.0,
    lr: float = 0.5,
    examples: list[float] | None = None,
    number: int = 1,
) -> Round:
    """Let clients send ``-Delta_i``."""
    count = len(deltas)
    this_round = Round(
        number=number,
        model=strategy.model,
        clients=list(range(count)),
        arrays={"update": -np.array(deltas, np.float32)},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.array(examples or [1] * count, np.float64),
        num_steps=np.broadcast_to(np.array(steps, np.float64), count).copy(),
        lr=lr,
    )
    strategy.model = strategy.aggregate(this_round)
    return this_round


@pytest.mark.parametrize(("units", "sent"), [("round", [3.0, 3.0]), ("step", [1.5, 1.5])])
def test_a_round_by_hand(units: str, sent: list[float]) -> None:
    """Deltas (3,0) and (0,3), K=2, lr=0.5. Equal alpha = (1 - 1/2)/sqrt2 = 0.353553.

    Eq. 9: (1.5, 1.5)/(2*0.5) = (1.5, 1.5) per step, (3, 3) per round.
    Server step K lr = 1: w = -1.5.
    """
    strategy = taco(gradient_units=units)
    play(strategy, [[3, 0], [0, 3]])
    assert np.allclose(strategy.model, [-1.5, -1.5])
    assert np.allclose(strategy.broadcast()["global_gradient"], sent)
    assert strategy.instruction(0).config["alpha"] == pytest.approx(0.353553, abs=1e-6)


@pytest.mark.parametrize("correction", [True, False])
def test_without_tailored_aggregation_weights_are_by_samples(correction: bool) -> None:
    """1 and 3 samples: a quarter of (4, 0) and three of (0, 4), whatever the steps."""
    strategy = taco(correction=correction, aggregation=False)
    this_round = play(strategy, [[4, 0], [0, 4]], steps=[1.0, 7.0], examples=[1, 3])
    assert np.array_equal(strategy.model, [-1, -3])
    assert np.array_equal(this_round.per_client["weight"], [0.25, 0.75])
    assert np.allclose(strategy.gradient, [2, 6]), "the move over lr, in round units"


def test_without_both_ideas_nobody_is_expelled() -> None:
    """Table VI's "neither" is FedAvg; either idea alone keeps the detector."""
    for correction, aggregation in ((False, False), (True, False), (False, True)):
        strategy = taco(
            4, correction=correction, aggregation=aggregation, detector="printed", lambda_=1
        )
        play(strategy, [[1.0, 0.0]] * 4)
        assert len(strategy.expelled) == (3 if correction or aggregation else 0)


def test_a_client_that_reports_no_steps_counts_as_one_step() -> None:
    """Steps 0 and 3, the mean of 1 and 3 is 2; equal alpha, so (4/1, 4/3) halved, times 2."""
    strategy = taco()
    this_round = play(strategy, [[4, 0], [0, 4]], steps=[0.0, 3.0], lr=0.5)
    assert np.allclose(strategy.model, [-4, -4 / 3])
    assert np.allclose(this_round.per_client["weight"], [1, 1 / 3])
    assert np.allclose(strategy.gradient, [8, 8 / 3])


@pytest.mark.parametrize(("units", "unit"), [("round", 1.0), ("step", 0.5)])
def test_the_momentum_of_the_output_follows_the_units(units: str, unit: float) -> None:
    """Gamma = 1/K: one whole round in round units, 1/K of it otherwise."""
    strategy = taco(gradient_units=units, output="z")
    play(strategy, [[3, 0], [0, 3]])
    assert strategy.momentum_unit == pytest.approx(unit)
    factor = unit * (1 - 0.353553)
    assert np.allclose(strategy.result(), np.array([-1.5, -1.5]) * (1 + factor), atol=1e-5)


def test_a_gamma_of_ones_own_scales_the_output() -> None:
    """Gamma 1/4 and K = 2: half a round in round units, a quarter of it in step units."""
    for units, unit in (("round", 0.5), ("step", 0.25)):
        strategy = taco(gradient_units=units, gamma=0.25)
        play(strategy, [[3, 0], [0, 3]])
        assert strategy.momentum_unit == pytest.approx(unit)


def test_the_result_is_w_and_z_is_the_other_output() -> None:
    strategy, other = taco(), taco(output="z")
    for one in (strategy, other):
        play(one, [[3, 0], [0, 3]])
    assert np.array_equal(strategy.result(), strategy.model)
    assert list(strategy.other_outputs()) == ["z"]
    assert np.array_equal(strategy.other_outputs()["z"], other.result())
    assert np.array_equal(other.other_outputs()["w"], other.model)
    plain = taco(correction=False)
    play(plain, [[3, 0], [0, 3]])
    assert not plain.other_outputs(), "without a correction z is w"
    strategy.buffers = np.ones(1, np.float32)
    assert not strategy.other_outputs(), "z has no statistics"


def test_clients_are_asked_to_score_the_result() -> None:
    """With z as the result, z is what goes out for evaluation; training starts from w."""
    strategy = hosted(taco(output="z"))
    strategy.info = dataclasses.replace(strategy.info, personal_eval=True)
    play(strategy, [[3, 0], [0, 3]])
    grid, config = ScriptedGrid(lambda message: message), ConfigRecord()
    for configure, model in (
        (strategy.configure_train, strategy.model),
        (strategy.configure_evaluate, strategy.result()),
    ):
        message = next(iter(configure(1, strategy.arrays(), config, grid)))
        sent = next(iter(read_instructions(message.content).values())).arrays["model"]
        assert np.array_equal(sent, model)
    assert not np.array_equal(strategy.model, strategy.result())


def test_z_after_an_expulsion_counts_those_who_are_present() -> None:
    """Lambda 1, printed rule: client 2, coefficient (1 - 2/8) 1 = 0.75, is expelled.

    Clients (3, 0) and (3, 0) have (1 - 3/8) = 0.625, below kappa 0.7. All move by (3, 0) then:
    w = (-3, 0); mean alpha of the two 0.625: z = -3 (1 + 0.375), not with the 2/3 of all three.
    """
    strategy = taco(clients=3, detector="printed", lambda_=1, kappa=0.7, output="z")
    this_round = play(strategy, [[3, 0], [3, 0], [2, 0]])
    assert strategy.expelled == {2}
    assert np.allclose(this_round.per_client["weight"], [0.5, 0.5, 0])
    assert np.allclose(strategy.model, [-3, 0])
    assert np.allclose(strategy.result(), [-3 * 1.375, 0])


@pytest.mark.parametrize(("rounds", "limit"), [(10, 2), (11, 3), (14, 3), (15, 3), (16, 4), (1, 1)])
def test_a_fifth_of_the_rounds_is_rounded_up(rounds: int, limit: int) -> None:
    strategy = taco(clients=4, rounds=rounds, detector="printed")
    for number in range(1, limit + 1):
        assert not strategy.expelled
        play(strategy, [[1.0, 0.0]] * 4, number=number)
    assert len(strategy.expelled) == 3


def test_who_replays_by_angle_by_hand() -> None:
    """Cosines 1, 0.991, 0.8, 0.6, 0 are 0, 0.009, 0.2, 0.4, 1 short of 1; 0.05 of 0.2 is 0.01.

    So the first two are near enough. With 0.95 for 0.991 only the first is; where the others too
    are at 0.99, nobody stands out but the exact one.
    """
    far = np.ones(5)

    def judged(*cosines: float, least: float = 0.9) -> list[bool]:
        return is_replay(np.array(cosines), far, least).tolist()

    assert judged(1, 0.991, 0.8, 0.6, 0) == [True, True, False, False, False]
    assert judged(1, 0.95, 0.8, 0.6, 0) == [True, False, False, False, False]
    assert judged(1, 0.99, 0.99, 0.99, 0.99) == [True, False, False, False, False]
    assert judged(1, 0.991, 0.8, 0.6, 0, least=0.995) == [True, False, False, False, False]
    assert judged(0, 0, 0, 0, 0, least=-1) == [False] * 5, "the first round has no gradient"
    assert is_replay(np.array([0.3]), np.ones(1), 0.0).tolist() == [False], "one client alone"


def test_who_replays_by_distance_by_hand() -> None:
    """Distances 0.1, 0.1, 0.4, 0.8, 2: a quarter of 0.4 is 0.1; all cosines alike."""
    cosines = np.full(5, 0.95)
    near = is_replay(cosines, np.array([0.1, 0.11, 0.4, 0.8, 2]), 0.9)
    assert near.tolist() == [True, False, False, False, False]
    assert not is_replay(cosines, np.array([0.1, 0.11, 0.4, 0.8, 2]), 0.96).any()
    half = is_replay(np.array([1, 1, 1, 1, 0.5]), np.array([0, 0, 0, 0, 0.9]), 0.9)
    assert half.tolist() == [True, True, True, True, False], "median zero: the exact ones"


def test_the_distance_of_a_replay_by_hand() -> None:
    """Of r = (3, 4): itself 0; (6, 8) is |(3, 4)|/5 = 1 off; (4, -3), at right angles, sqrt2."""
    vectors = np.array([[3, 4], [6, 8], [4, -3], [0, 0]], np.float32)
    cosine, lengths = np.array([1, 1, 0, 0.0]), np.array([5, 10, 5, 0.0])
    direct = np.linalg.norm(vectors - [3, 4], axis=1) / 5
    np.testing.assert_allclose(replay_distance(cosine, lengths, 5.0), direct)
    np.testing.assert_allclose(direct, [0, 1, math.sqrt(2), 1])
    assert replay_distance(cosine, lengths, 0.0).tolist() == [1, 1, 1, 1]
    rounded = replay_distance(np.array([1.0]), np.array([5 * (1 + 1e-16)]), 5.0)
    assert rounded[0] < 1e-7, "never the root of a negative number"


def test_freeloaders_are_found_and_the_honest_kept_with_noise_and_scale() -> None:
    """Six honest clients, a replay, one with noise of a tenth at right angles, one of half size."""
    strategy = taco(clients=9, lambda_=1, kappa=0.1)
    honest = [[3.0, 1.0], [1.0, 3.0], [2.0, 2.0], [4.0, 0.0], [0.0, 4.0], [1.0, 1.0]]
    play(strategy, [*honest, *[[0.0, 0.0]] * 3])
    assert not strategy.expelled
    replay = -strategy.model
    noisy = replay + 0.1 * np.array([replay[1], -replay[0]])
    others = [[3.0, -1.0], [-1.0, 3.0], [5.0, 1.0], [4.0, -2.0], [0.0, 4.0], [1.0, 4.0]]
    play(strategy, [*others, replay.tolist(), noisy.tolist(), (0.5 * replay).tolist()])
    assert strategy.expelled == {6, 7, 8}


def test_a_norm_that_lies_does_not_matter() -> None:
    """Whatever client 0 says of its update's length, coefficients come from the update itself."""
    updates = {0: [3.0, 0.0], 1: [0.0, 3.0]}
    found = []
    for said in (3.0, 1e-9, 1e12, -1.0):
        strategy = taco()
        sent = {c: result(c, u, norm=said if c == 0 else 3.0) for c, u in updates.items()}
        one_round(strategy, reply_with(sent), [0, 0])
        found.append(strategy.alpha.tolist())
        assert [row["norm"] for row in strategy.round_record.rows] == [3.0, 3.0]
        assert [row["status"] for row in strategy.round_record.rows] == ["ok", "ok"]
    assert found == found[:1] * 4


def test_an_expulsion_is_noted_in_its_round() -> None:
    strategy = taco(clients=3, detector="printed", lambda_=2, kappa=0.6)
    sent = {c: result(c, [1.0, 0.0]) for c in range(3)}
    one_round(strategy, reply_with(sent), [0, 0], 1)
    assert "note" not in strategy.round_record.scalars
    one_round(strategy, reply_with(sent), [0, 0], 2)
    assert strategy.round_record.scalars["note"] == "expelled client 0, 1"


def test_an_aggregate_that_is_not_finite_expels_nobody() -> None:
    """The round is undone, and so is what it noted."""
    strategy = taco(clients=3, detector="printed", lambda_=1, kappa=0.6)
    strategy.info = dataclasses.replace(strategy.info, server_lr=1e30)
    sent = {c: result(c, [1e30, 0.0]) for c in range(3)}
    one_round(strategy, reply_with(sent), [0, 0])
    assert not strategy.expelled
    assert "expelled" not in strategy.round_record.scalars["note"]


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


def test_the_distance_to_a_replay_is_from_the_last_change_of_the_model() -> None:
    """Round 1 moves the model from (9, 9) by (-1.5, -1.5). In round 2 that again is at distance 0,
    twice that at distance 1.
    """
    strategy = taco()
    strategy.model = np.array([9, 9], np.float32)
    play(strategy, [[3, 0], [0, 3]])
    np.testing.assert_allclose(strategy.model, [7.5, 7.5])
    this_round = play(strategy, [[1.5, 1.5], [3, 3]], number=2)
    np.testing.assert_allclose(this_round.per_client["replay_distance"], [0, 1], atol=1e-6)
