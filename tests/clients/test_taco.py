"""TACO's correction at its ends: all of the global gradient, and none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bowl import fit, place

from clients.base import Training
from clients.taco import TacoClient
from strategies.taco import TacoParams


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0.0, [-0.5, 1.5]), (0.5, [0.0, 1.5]), (1.0, [0.5, 1.5])]
)
def test_one_step_by_hand(tmp_path: Path, alpha: float, expected: list[float]) -> None:
    """Bottom (1, 3), lr 1/2, gamma 1, Delta (2, 0): g = (-1, -3) + (1 - alpha)(2, 0)."""
    context = place(tmp_path, Training(local_steps=1, batch_size=1))
    params = TacoParams(gamma=1.0)
    (update,), _, _ = fit(TacoClient, context, [0, 0], [2, 0], params=params, alpha=alpha)
    assert update.tolist() == expected
