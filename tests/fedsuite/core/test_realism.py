"""Who drops out, who is slow, and how a slow client's steps are cut."""

from __future__ import annotations

import numpy as np
import pytest

from fedsuite.core import seeds
from fedsuite.core.realism import drops_out, shorten, straggler_pace


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (1.0, [[1, 2, 3], [4, 5, 6]]),
        (0.6, [[1, 2, 3], [4]]),  # 3.6 steps
        (0.5, [[1, 2, 3], []]),
        (0.25, [[1, 2], []]),  # 1.5 steps: half up
        (0.0, [[1], []]),  # at least one
    ],
)
def test_the_first_steps_are_kept(pace: float, expected: list[list[int]]) -> None:
    assert shorten([[1, 2, 3], [4, 5, 6]], pace) == expected


def test_a_stragglers_pace_is_uniform_in_its_range() -> None:
    draw = np.random.default_rng(0)
    paces = np.array([straggler_pace(0.25, 0.4, draw) for _ in range(4000)])
    slow = paces[paces < 1]
    assert len(slow) / len(paces) == pytest.approx(0.25, abs=0.03)
    assert slow.min() >= 0.4 and slow.mean() == pytest.approx(0.7, abs=0.02)
    assert slow.std() == pytest.approx(0.6 / 12**0.5, abs=0.02)


def test_dropouts_are_drawn_per_round_and_client() -> None:
    drawn = {(r, c): drops_out(0.3, 7, r, c) for r in range(50) for c in range(50)}
    assert np.mean(list(drawn.values())) == pytest.approx(0.3, abs=0.04)
    assert drawn[3, 4] == bool(seeds.generator(7, "dropout", 3, 4).random() < 0.3)
    assert not any(drops_out(0.0, 7, 1, client) for client in range(50))
