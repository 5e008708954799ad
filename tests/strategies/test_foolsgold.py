"""FoolsGold's weights by hand and by property, and its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from rounds import meet, play, strategy_of

from clients.fedavg import FedAvgClient
from fedsuite.core.vector import Doubles, Matrix
from fedsuite.engines.inline import InlineGrid
from strategies.foolsgold import FoolsGold, agreement_weights, distinct_weights, pairwise_cosines

Weigh = Callable[[Matrix], Doubles]
SCALES = (0.0, 1e-18, 1.0, 1e18)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Rows of one to five clients, each with a magnitude of its own."""
    count, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    numbers = st.lists(st.floats(-1, 1, width=32), min_size=size, max_size=size)
    rows = [
        np.array(draw(numbers), np.float32) * np.float32(draw(st.sampled_from(SCALES)))
        for _ in range(count)
    ]
    return np.stack(rows)


def original(rows: Matrix) -> Doubles:
    return distinct_weights(pairwise_cosines(rows))


def test_agreement_by_hand() -> None:
    """(3,0), (0,3), (3,3): cosines with the mean 1/sqrt2, 1/sqrt2, 1; their sum is 1 + sqrt2."""
    deltas = np.array([[3, 0], [0, 3], [3, 3]], np.float32)
    expected = np.array([math.sqrt(0.5), math.sqrt(0.5), 1]) / (1 + math.sqrt(2))
    np.testing.assert_allclose(agreement_weights(deltas), expected, rtol=1e-6)


def test_who_goes_against_the_mean_has_no_say() -> None:
    weights = agreement_weights(np.array([[4, 0], [4, 0], [-2, 0]], np.float32))
    np.testing.assert_allclose(weights, [0.5, 0.5, 0.0])


def test_pairwise_cosines_by_hand() -> None:
    """(1,0), (3,4), (0,0): 3/5 between the first two, 0 with a vector of no length."""
    rows = np.array([[1, 0], [3, 4], [0, 0]], np.float32)
    expected: list[list[float]] = [[1, 0.6, 0], [0.6, 1, 0], [0, 0, 0]]
    np.testing.assert_allclose(pairwise_cosines(rows), expected, rtol=1e-12)


def test_cosines_of_long_rows_are_summed_over_all_blocks() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(3, 70_000)).astype(np.float32)
    rows[:, 66_000:] *= 10
    units = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(pairwise_cosines(rows), units @ units.T, atol=1e-9)


def test_two_of_a_kind_count_for_nothing() -> None:
    """A and B the same, C at right angles: trust 0, 0, 1."""
    similarity = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1.0]])
    np.testing.assert_allclose(distinct_weights(similarity), [0, 0, 1])


def test_the_logit_by_hand() -> None:
    """Half alike: trust 1/2, 1/2, 1; logit(1/2) + 1/2 = 1/2, and 1 is cut at 1."""
    similarity = np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(distinct_weights(similarity), [0.25, 0.25, 0.5])


def test_pardon_by_hand() -> None:
    """s_AB = 0.6, s_AC = 0.4. C's nearest, 0.4, is less than A's, 0.6: s_CA 0.4/0.6 = 4/15.

    Trust 0.4, 0.4, 11/15; over the largest 6/11, 6/11, 1; logit(6/11) = ln 1.2 = 0.182322, and
    0.682322 with the half. Without pardon A would have 2/3, and ln 2 + 1/2 is cut at 1.
    """
    similarity = np.array([[1, 0.6, 0.4], [0.6, 1, 0], [0.4, 0, 1]])
    expected = np.array([0.682322, 0.682322, 1]) / 2.364643
    np.testing.assert_allclose(distinct_weights(similarity), expected, atol=1e-6)


def test_no_confidence_is_no_distinction() -> None:
    similarity = np.array([[1, 0.6, 0.4], [0.6, 1, 0], [0.4, 0, 1]])
    assert np.array_equal(distinct_weights(similarity, kappa=0.0), np.full(3, 1 / 3))


EDGES = {
    "all the same": [[1, 2], [1, 2], [1, 2]],
    "the same direction": [[0.1, 0.2], [0.3, 0.6], [7, 14]],
    "all zero": [[0, 0], [0, 0], [0, 0]],
    "one client": [[1, 2]],
    "one client, zero": [[0, 0]],
    "opposite": [[1, 2], [-1, -2]],
}


@pytest.mark.parametrize("weigh", [agreement_weights, original])
@pytest.mark.parametrize("name", EDGES)
def test_where_nobody_stands_out_all_weigh_the_same(weigh: Weigh, name: str) -> None:
    rows = np.array(EDGES[name], np.float32)
    with np.errstate(all="raise"):
        np.testing.assert_allclose(weigh(rows), np.full(len(rows), 1 / len(rows)), rtol=1e-6)


@pytest.mark.parametrize("weigh", [agreement_weights, original])
@given(rows=matrices())
def test_weights_are_shares_at_any_magnitude(weigh: Weigh, rows: Matrix) -> None:
    weights = weigh(rows)
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("weigh", [agreement_weights, original])
@given(rows=matrices())
def test_permuting_clients_permutes_weights(weigh: Weigh, rows: Matrix) -> None:
    np.testing.assert_allclose(weigh(rows[::-1].copy())[::-1], weigh(rows), rtol=1e-4, atol=1e-6)


def test_a_round_on_two_bowls_by_hand(tmp_path: Path) -> None:
    """Updates (3/4, 9/4) and (-3/4, 3/4); mean (0, 3/2): cosines 3/sqrt10 and 1/sqrt2.

    Weights 0.572949 and 0.427051: w = (0.109424, 1.609424).
    """
    strategy = strategy_of(FoolsGold, variant="taco")
    meet(strategy, FedAvgClient, tmp_path)
    np.testing.assert_allclose(strategy.model, [0.109424, 1.609424], atol=1e-5)


def test_the_original_remembers_all_rounds_of_a_client() -> None:
    """Clients 0 and 2 take part in round 1 with (4, 0) and (0, 4), 0 and 1 in round 2 with (0, 4)
    and (0, 2). Histories (4, 4) and (0, 2): cosine 1/sqrt2 for both, so they weigh the same.
    Round 3: 2 sends (0, 1), history (0, 5), just like 1's (0, 4); 0 sends (4, -4), history (8, 0).
    """
    strategy = strategy_of(FoolsGold, clients=3)
    play(strategy, [[4, 0], [0, 4]], clients=[0, 2])
    this_round = play(strategy, [[0, 4], [0, 2]], clients=[0, 1])
    assert np.array_equal(strategy.history, [[4, 4], [0, 2], [0, 4]])
    np.testing.assert_allclose(this_round.per_client["weight"], [0.5, 0.5])
    again = strategy_of(FoolsGold, clients=3)
    again.load_state(strategy.state())
    again.model = strategy.model
    for one in (strategy, again):
        this_round = play(one, [[4, -4], [0, 2], [0, 1]])
        np.testing.assert_allclose(this_round.per_client["weight"], [1, 0, 0])
    assert np.array_equal(strategy.history, again.history)


def test_a_state_taken_out_does_not_change_with_later_rounds() -> None:
    strategy = strategy_of(FoolsGold)
    play(strategy, [[4, 0], [0, 4]])
    again = strategy_of(FoolsGold)
    again.load_state(strategy.state())
    play(strategy, [[4, 0], [0, 4]])
    assert np.array_equal(again.history, [[4, 0], [0, 4]])


def test_tacos_form_remembers_nothing() -> None:
    strategy = strategy_of(FoolsGold, variant="taco")
    play(strategy, [[4, 0], [0, 4]])
    assert strategy.state()["history"].size == 0


class PowerCut(BaseException):
    """Nothing in the suite expects it."""


class FailingGrid(InlineGrid):
    """Loses power in the third round."""

    rounds = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        messages = list(messages)
        self.rounds += any(m.metadata.message_type == "train" for m in messages)
        if self.rounds == 3:
            raise PowerCut
        return super().send_and_receive(messages, timeout=timeout)


def test_the_original_goes_on_after_a_power_cut_with_its_memory(
    experiment: Callable[..., Path],
) -> None:
    def model(folder: Path) -> bytes:
        return (folder / "model.safetensors").read_bytes()

    some = {"num_rounds": 4, "fraction_train": 0.75}
    whole = experiment("foolsgold", **some)
    with pytest.raises(PowerCut):
        experiment("foolsgold", FailingGrid(1), **some, run_name="cut")
    again = experiment("foolsgold", **some, run_name="cut", resume=True)
    assert model(again) == model(whole)
    assert model(whole) != model(experiment("foolsgold", **some | {"foolsgold.variant": "taco"}))


def test_cosines_of_pairs_may_be_negative() -> None:
    rows = np.array([[2, 0], [-3, 0], [-3, 4]], np.float32)
    expected = [[1, -1, -0.6], [-1, 1, 0.6], [-0.6, 0.6, 1]]
    np.testing.assert_allclose(pairwise_cosines(rows), expected)


def test_directions_count_as_one_up_to_rounding() -> None:
    """Two at 1 - 4e-10 of each other; the third 0.5e-9 or 1.5e-9 from both."""
    for gap, expected in ((0.5e-9, [1 / 3] * 3), (1.5e-9, [0, 0, 1])):
        near, far = 1 - 4e-10, 1 - gap
        similarity = np.array([[1, near, far], [near, 1, far], [far, far, 1]])
        np.testing.assert_allclose(distinct_weights(similarity), expected, atol=1e-6)
