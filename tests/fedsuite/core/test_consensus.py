"""Histories of cosines: their room, what drops out of them, what counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsuite.core.consensus import consensus, empty_history, recent, reliability, remember


def test_a_history_has_room_for_one_round_more_than_its_window() -> None:
    assert empty_history(2).tolist() == [[0, 0], [0, 0], [0, 0]]
    assert recent(empty_history(2), 1, 2, "values").tolist() == []


def test_the_oldest_row_drops_out() -> None:
    history = empty_history(1)
    for number, cosine in ((3, 0.5), (4, -0.25), (6, 1.0)):
        history = remember(history, number, cosine)
    assert history.tolist() == [[4, -0.25], [6, 1]]


@pytest.mark.parametrize(
    ("now", "window", "expected"),
    [
        (6, "values", [-0.25, 1.0]),
        (6, "rounds", [-0.25, 1.0]),  # rounds 4 to 6
        (7, "rounds", [1.0]),
        (9, "rounds", []),
        (9, "values", [-0.25, 1.0]),
    ],
)
def test_what_counts_by_hand(now: int, window: str, expected: list[float]) -> None:
    """Cosines of rounds 4 and 6, the row before them empty, a window of two."""
    history = remember(remember(empty_history(2), 4, -0.25), 6, 1.0)
    assert recent(history, now, 2, window).tolist() == expected


def test_scores_by_hand() -> None:
    """Without a floor, what goes against the direction counts nothing; the variance of (0, 1, 2)
    is 2/3.
    """
    assert consensus(np.array([-0.5, 0.5]), 3.0).tolist() == [0, 0.125]
    assert reliability(np.array([0.0, 1.0, 2.0]), 3.0) == pytest.approx(math.exp(-2))
    assert reliability(np.zeros(0), 3.0) == 1.0
