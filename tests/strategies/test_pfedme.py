"""pFedMe's server by hand."""

from __future__ import annotations

import numpy as np
import pytest

from strategies.base import Round, RunInfo
from strategies.pfedme import PFedMe, PFedMeParams, scaled


@pytest.mark.parametrize(("beta", "expected"), [(1.0, [12, 22]), (0.5, [11, 21]), (2.0, [14, 24])])
def test_a_round_by_hand(beta: float, expected: list[float]) -> None:
    """Updates (1, 0) and (3, 4) have the mean (2, 2) whatever their rows; w = (10, 20) moves by
    beta times that, which is (1 - beta) w + beta mean_i w_i.
    """
    strategy = PFedMe(
        RunInfo(num_clients=2, client_sizes={0: 1, 1: 9}, seed=0), PFedMeParams(beta=beta)
    )
    model = strategy.aggregate(
        Round(
            number=1,
            model=np.array([10, 20], np.float32),
            clients=[0, 1],
            arrays={"update": np.array([[1, 0], [3, 4]], np.float32)},
            buffers=np.zeros((2, 0), np.float32),
            num_examples=np.array([1.0, 9.0]),
            num_steps=np.ones(2),
            lr=0.1,
        )
    )
    assert np.array_equal(model, expected)


def test_a_whole_step_is_the_move_itself() -> None:
    move = np.array([0.1, -3], np.float32)
    assert scaled(move, 1.0) is move
    np.testing.assert_allclose(scaled(move, 0.5), [0.05, -1.5], rtol=1e-6)
