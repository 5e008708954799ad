"""STEM's server and whole rounds by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounds import meet, play, strategy_of

from clients.stem import StemClient
from strategies.stem import Stem, extra_step


def test_one_more_step_by_hand() -> None:
    """(1, 2) - 0.5 (4, -4) = (-1, 4)."""
    vectors = np.array([[1, 2], [4, -4]], np.float32)
    assert np.array_equal(extra_step(vectors[0], vectors[1], lr=0.5), [-1, 4])


def test_two_rounds_on_two_bowls_by_hand(tmp_path: Path) -> None:
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
    strategy = strategy_of(Stem, a=0.5)
    sent = meet(strategy, StemClient, tmp_path, 1)
    assert np.array_equal(sent["direction"], [[-0.5, -1.5], [0.5, -0.5]])
    assert np.array_equal(strategy.model, [0, 2])
    assert np.array_equal(strategy.broadcast()["direction"], [0, -1])
    assert strategy.instruction(0).config == {"last-step": 0.5}
    sent = meet(strategy, StemClient, tmp_path, 2)
    assert np.array_equal(sent["update"], [[0.5, 0.625], [-0.5, -0.375]])
    assert np.array_equal(strategy.model, [0, 2.125])
    assert np.array_equal(strategy.broadcast()["direction"], [0, 0])


def test_without_its_own_step_the_server_averages() -> None:
    strategy = strategy_of(Stem, server_step=False)
    play(strategy, [[4, 0], [0, 2]], steps=[1, 7], direction=[[8, 8], [0, 0]])
    assert np.array_equal(strategy.model, [2, 1])
    assert np.array_equal(strategy.broadcast()["direction"], [4, 4])
    assert strategy.instruction(0).config == {"last-step": 0.0}


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
    assert np.isfinite(extra_step(vector, -vector, 0.1)).all()
