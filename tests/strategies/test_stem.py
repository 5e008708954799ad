"""STEM's server and whole rounds by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounds import meet, play, strategy_of

from clients.base import Training
from clients.stem import StemClient
from strategies.stem import Stem, StemParams, server_move


def test_one_more_step_by_hand() -> None:
    """(1, 2) - 0.5 (4, -4) = (-1, 4)."""
    vectors = np.array([[1, 2], [4, -4]], np.float32)
    assert np.array_equal(server_move(vectors[0], vectors[1], lr=0.5), [-1, 4])


def test_two_rounds_of_tacos_form_by_hand(tmp_path: Path) -> None:
    """Bottoms (1, 3) and (-1, 1), K = 2, lr = 1/2, a = 1/2.

    Round 1 is plain on a bowl: updates (3/4, 9/4), (-3/4, 3/4), last directions (-1/2, -3/2),
    (1/2, -1/2); mean update (0, 3/2), v = (0, -1): w = (0, 3/2) - (0, -1)/2 = (0, 2).
    Round 2: the point before is (0, 2) + v/2 = (0, 3/2). There client 0 has gradient (-1, -3/2),
    here (-1, -1): v_0 = (-1, -1) + ((0, -1) - (-1, -3/2))/2 = (-1/2, -3/4), to (1/4, 19/8).
    v_1 = (-3/4, -5/8) + ((-1/2, -3/4) - (-1, -1))/2 = (-1/2, -1/2), to (1/2, 21/8).
    Client 1: (1, 1) + ((0, -1) - (1, 1/2))/2 = (1/2, 1/4), to (-1/4, 15/8);
    (3/4, 7/8) + ((1/2, 1/4) - (1, 1))/2 = (1/2, 1/2), to (-1/2, 13/8).
    Mean update (0, 1/8), v = (0, 0): w = (0, 17/8).
    """
    strategy = strategy_of(Stem, a=0.5, form="taco")
    sent = meet(strategy, StemClient, tmp_path, 1)
    assert np.array_equal(sent["direction"], [[-0.5, -1.5], [0.5, -0.5]])
    assert np.array_equal(strategy.model, [0, 2])
    assert np.array_equal(strategy.broadcast()["direction"], [0, -1])
    assert strategy.instruction(0).config == {"last-step": 0.5}
    sent = meet(strategy, StemClient, tmp_path, 2)
    assert np.array_equal(sent["update"], [[0.5, 0.625], [-0.5, -0.375]])
    assert np.array_equal(strategy.model, [0, 2.125])
    assert np.array_equal(strategy.broadcast()["direction"], [0, 0])


def test_two_rounds_of_the_papers_form_by_hand(tmp_path: Path) -> None:
    """The same bowls, K = 2, lr = 1/2, a = 1/2; clients send where they measured, not the step.

    Round 1: from 0 to (1/2, 3/2) and (-1/2, 1/2), where they measure (-1/2, -3/2), (1/2, -1/2).
    Mean update (0, 1), v = (0, -1): w = (0, 1) + (0, 1)/2 = (0, 3/2), the mean of (3/4, 9/4) and
    (-3/4, 3/4), the models after both steps. The point before is (0, 3/2) + v/2 = (0, 1).
    Round 2, client 0: v_0 = (-1, -3/2) + ((0, -1) - (-1, -2))/2 = (-1/2, -1), to (1/4, 2);
    v_1 = (-3/4, -1) + ((-1/2, -1) - (-1, -3/2))/2 = (-1/2, -3/4).
    Client 1: v_0 = (1, 1/2) + ((0, -1) - (1, 0))/2 = (1/2, 0), to (-1/4, 3/2);
    v_1 = (3/4, 1/2) + ((1/2, 0) - (1, 1/2))/2 = (1/2, 1/4).
    Mean update (0, 1/4), v = (0, -1/4): w = (0, 3/2) + (0, 1/4) + (0, 1/8) = (0, 15/8).
    """
    strategy = strategy_of(Stem, a=0.5)
    sent = meet(strategy, StemClient, tmp_path, 1)
    assert np.array_equal(sent["update"], [[0.5, 1.5], [-0.5, 0.5]])
    assert np.array_equal(sent["direction"], [[-0.5, -1.5], [0.5, -0.5]])
    assert np.array_equal(strategy.model, [0, 1.5])
    assert strategy.instruction(0).config == {"last-step": 0.5}
    sent = meet(strategy, StemClient, tmp_path, 2)
    assert np.array_equal(sent["update"], [[0.25, 0.5], [-0.25, 0]])
    assert np.array_equal(sent["direction"], [[-0.5, -0.75], [0.5, 0.25]])
    assert np.array_equal(strategy.model, [0, 1.875])


def test_a_single_step_is_the_servers(tmp_path: Path) -> None:
    """K = 1: the clients have not moved; v = (0, -2), and the server steps lr v = (0, 1)."""
    strategy = strategy_of(Stem)
    sent = meet(strategy, StemClient, tmp_path, 1, Training(local_steps=1, batch_size=1))
    assert np.array_equal(sent["update"], np.zeros((2, 2)))
    assert np.array_equal(strategy.model, [0, 1])


def test_the_servers_rate_scales_the_whole_move() -> None:
    """Mean update (2, 1), v = (4, 4), lr 1/2: move (0, -1), a quarter of it (0, -1/4)."""
    strategy = strategy_of(Stem, info={"server_lr": 0.25})
    play(strategy, [[4, 0], [0, 2]], direction=[[8, 8], [0, 0]])
    assert np.array_equal(strategy.model, [0, -0.25])
    assert strategy.instruction(0).config == {"last-step": 0.125}


def test_state_survives() -> None:
    strategy, again = strategy_of(Stem), strategy_of(Stem)
    play(strategy, [[3, 0], [0, 3]], direction=[[1, 0], [0, 2]])
    again.load_state(strategy.state())
    assert again.instruction(1) == strategy.instruction(1)
    assert np.array_equal(again.broadcast()["direction"], [0.5, 1])


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
@given(numbers=st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2))
def test_finite_in_finite_out(scale: float, numbers: list[float]) -> None:
    vector = np.array(numbers, np.float32) * np.float32(scale)
    assert np.isfinite(server_move(vector, -vector, 0.1)).all()


def test_before_the_first_round_the_server_has_not_stepped() -> None:
    strategy = strategy_of(Stem)
    assert strategy.instruction(0).config == {"last-step": 0.0}
    assert strategy.broadcast()["direction"].tolist() == [0, 0]


@pytest.mark.parametrize(("form", "expected"), [("paper", [2, 1]), ("taco", [0, -1])])
def test_without_memory_only_tacos_form_steps_along_the_direction(
    form: str, expected: list[float]
) -> None:
    """Mean update (2, 1), v = (4, 4), lr 1/2, a = 1: clients took their last step themselves."""
    strategy = strategy_of(Stem, a=1.0, form=form)
    play(strategy, [[4, 0], [0, 2]], direction=[[8, 8], [0, 0]])
    assert np.array_equal(strategy.model, expected)


def test_the_papers_form_needs_steps_that_the_server_can_take() -> None:
    refused = Stem.misfit(StemParams(), has_statistics=False, plain_steps=False)
    assert "stem.form=paper needs plain local steps" in refused
    assert Stem.misfit(StemParams(), False) == Stem.misfit(StemParams(), True, True) == ""
    assert Stem.misfit(StemParams(form="taco"), False, plain_steps=False) == ""
    assert Stem.misfit(StemParams(a=1.0), False, plain_steps=False) == ""
