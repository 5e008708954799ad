"""Freeloaders: what they send back, and the noise they hide it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from bowl import fit, place

from clients.base import Training
from clients.fedavg import FedAvgClient
from clients.freeloader import freeloading, with_noise
from clients.taco import TacoClient
from fedsuite.core import seeds
from fedsuite.core.vector import Vector
from strategies.taco import TacoParams

TWO_STEPS = Training(local_steps=2, batch_size=1)


def replay(folder: Path, noise: float, server_round: int = 2) -> Vector:
    """Receive (0, 0), then (3, 4); answer in the second of these rounds."""
    cls = freeloading(FedAvgClient, noise)
    (first,), _, _ = fit(cls, place(folder, TWO_STEPS, server_round - 1), [0, 0])
    assert not first.any(), "nothing to send back yet, and no noise of its own"
    (second,), _, _ = fit(cls, place(folder, TWO_STEPS, server_round), [3, 4])
    return second


def test_a_replay_is_exact_without_noise(tmp_path: Path) -> None:
    assert np.array_equal(replay(tmp_path, 0.0), [3, 4])


def test_noise_is_as_long_as_asked_for(tmp_path: Path) -> None:
    """A tenth of |(3, 4)| = 5 is a half, in the direction drawn for (seed, round, client)."""
    noise = replay(tmp_path, 0.1).astype(np.float64) - [3, 4]
    assert np.isclose(np.linalg.norm(noise), 0.5, atol=1e-6)
    drawn = seeds.generator(0, "freeloader", 2, 0).standard_normal(2)
    np.testing.assert_allclose(noise, 0.5 * drawn / np.linalg.norm(drawn), atol=1e-6)


def test_noise_repeats_with_the_round_and_changes_with_it(tmp_path: Path) -> None:
    one, again, later = (
        replay(tmp_path / name, 0.1, number) for name, number in (("a", 2), ("b", 2), ("c", 3))
    )
    assert np.array_equal(one, again) and not np.array_equal(one, later)


def test_nothing_with_noise_is_nothing() -> None:
    nothing = np.zeros(3, np.float32)
    assert np.array_equal(with_noise(nothing, 0.5, np.random.default_rng(0)), nothing)


def test_a_freeloader_of_taco_states_the_norm_of_what_it_sends(tmp_path: Path) -> None:
    cls = freeloading(TacoClient)
    settings: dict[str, Any] = {"params": TacoParams(), "alpha": 0.1}
    fit(cls, place(tmp_path, TWO_STEPS, 1), [0, 0], [0, 0], **settings)
    (_,), _, metrics = fit(cls, place(tmp_path, TWO_STEPS, 2), [3, 4], [1, 1], **settings)
    assert metrics["norm"] == 5.0


def test_a_freeloader_claims_steps_and_no_loss(tmp_path: Path) -> None:
    _, count, metrics = fit(freeloading(FedAvgClient), place(tmp_path, TWO_STEPS), [3, 4])
    assert metrics == {"steps": 2, "loss": 0.0} and count == 1
