"""FedDyn's gradients and drift by hand, on bowls; over rounds, losses and restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from bowl import fit, place
from rounds import TWO_STEPS, meet, play, strategy_of
from safetensors.numpy import load_file

from clients.fedavg import FedAvgClient
from clients.feddyn import FedDynClient
from fedsuite.core.compression import Compression
from fedsuite.core.vector import Vector
from strategies.feddyn import FedDyn, FedDynParams

Experiment = Callable[..., Path]


def gradient(folder: Path, client: int, number: int) -> Vector:
    path = folder / str(client) / "000000" / f"{number:06d}.safetensors"
    return load_file(path)["gradient"]


def test_two_rounds_on_two_bowls_by_hand(tmp_path: Path) -> None:
    """Bottoms b = (1, 3) and (-1, 1), alpha 1, lr 1/2: the local loss has curvature 2, so one step
    leads to its bottom (b + g_i + w)/2, and the second stays there.

    Round 1 from 0: v_i = b/2 = (1/2, 3/2), (-1/2, 1/2); g_i = -v_i. The mean (0, 1) is the drift
    too: w = (0, 2), where both bowls together have their bottom.
    Round 2: bottoms (1/4, 7/4) and (-1/4, 5/4), v_i = (1/4, -1/4), (-1/4, -3/4); mean (0, -1/2),
    drift (0, 1/2): w stays. g_i = (-3/4, -5/4), (3/4, 1/4).
    """
    strategy = strategy_of(FedDyn, alpha=1.0)
    sent = meet(strategy, FedDynClient, tmp_path, 1)
    assert np.array_equal(sent["update"], [[0.5, 1.5], [-0.5, 0.5]])
    assert strategy.model.tolist() == [0, 2] and strategy.drift.tolist() == [0, 1]
    assert gradient(tmp_path, 0, 1).tolist() == [-0.5, -1.5]
    sent = meet(strategy, FedDynClient, tmp_path, 2)
    assert np.array_equal(sent["update"], [[0.25, -0.25], [-0.25, -0.75]])
    assert strategy.model.tolist() == [0, 2] and strategy.drift.tolist() == [0, 0.5]
    assert gradient(tmp_path, 0, 2).tolist() == [-0.75, -1.25]
    assert gradient(tmp_path, 1, 2).tolist() == [0.75, 0.25]


def test_the_gradients_become_those_at_the_common_bottom(tmp_path: Path) -> None:
    """At w = (0, 2) the bowls slope by w - b = (-1, -1) and (1, 1)."""
    strategy = strategy_of(FedDyn, alpha=1.0)
    for number in range(1, 25):
        meet(strategy, FedDynClient, tmp_path, number)
    np.testing.assert_allclose(strategy.model, [0, 2], atol=1e-5)
    np.testing.assert_allclose(gradient(tmp_path, 0, 24), [-1, -1], atol=1e-5)
    np.testing.assert_allclose(gradient(tmp_path, 1, 24), [1, 1], atol=1e-5)


def test_the_drift_is_shared_by_all_clients() -> None:
    """One of four takes part: a quarter of its update, on top of the update itself."""
    strategy = strategy_of(FedDyn, clients=4)
    play(strategy, [[4, -8]], clients=[2])
    assert strategy.model.tolist() == [5, -10]
    play(strategy, [[0, 0], [0, 0]], clients=[0, 2], number=2)
    assert strategy.model.tolist() == [6, -12], "the drift so far acts in every round"
    assert strategy.counted.tolist() == [2, 0, 2, 0]


def test_a_lost_reply_does_not_part_server_and_clients(tmp_path: Path) -> None:
    """Round 2 is lost: round 3 is what round 2 would have been."""
    strategy = strategy_of(FedDyn, alpha=1.0)
    meet(strategy, FedDynClient, tmp_path, 1)
    drift, counted, model = strategy.drift, strategy.counted.copy(), strategy.model.copy()
    meet(strategy, FedDynClient, tmp_path, 2)
    expected = strategy.model.copy(), strategy.drift.copy(), gradient(tmp_path, 0, 2)
    strategy.load_state({"expelled": [], "drift": drift, "counted": counted})
    strategy.model = model
    meet(strategy, FedDynClient, tmp_path, 3)
    assert np.array_equal(strategy.model, expected[0])
    assert np.array_equal(strategy.drift, expected[1])
    assert np.array_equal(gradient(tmp_path, 0, 3), expected[2])


def test_the_first_reply_lost_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    params = FedDynParams(alpha=1.0)
    for number in (1, 2):
        context = place(tmp_path, TWO_STEPS, number)
        (update,), _, _ = fit(FedDynClient, context, [0, 0], params=params, counted=0)
        assert update.tolist() == [0.5, 1.5]
    assert context.state.load(after_round=True)["gradient"].tolist() == [-0.5, -1.5]


def test_the_gradient_follows_from_the_update_that_the_server_sees(tmp_path: Path) -> None:
    """Of (1/2, 3/2) top-k keeps the second number."""
    context = place(tmp_path, replace(TWO_STEPS, compression=Compression("top-k", 0.5)))
    params = FedDynParams(alpha=1.0)
    (update,), _, _ = fit(FedDynClient, context, [0, 0], params=params, counted=0)
    assert update.tolist() == [0, 1.5]
    assert context.state.load(after_round=True)["gradient"].tolist() == [0, -1.5]


def test_state_survives() -> None:
    strategy, again = strategy_of(FedDyn, clients=3), strategy_of(FedDyn, clients=3)
    play(strategy, [[3, 0], [0, 3]], clients=[0, 2])
    again.load_state(strategy.state())
    again.model = strategy.model
    assert again.instruction(2).config == {"counted": 1}
    for one in (strategy, again):
        play(one, [[1, 0], [0, 3]], clients=[1, 2], number=2)
    assert strategy.model.tobytes() == again.model.tobytes()


def test_without_alpha_it_is_the_plain_mean(tmp_path: Path, experiment: Experiment) -> None:
    context, off = place(tmp_path / "off", TWO_STEPS), FedDynParams(alpha=0.0)
    (update,), _, _ = fit(FedDynClient, context, [0, 0], params=off, counted=0)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path / "plain", TWO_STEPS), [0, 0])
    assert update.tobytes() == plain.tobytes()
    assert not context.state.load(after_round=True), "nothing is kept for nothing"

    def model(algo: str, **settings: object) -> bytes:
        folder = experiment(algo, local_steps=1, partition="sizes", **settings)
        return (folder / "model.safetensors").read_bytes()

    assert model("feddyn", **{"feddyn.alpha": 0}) == model("avg") != model("feddyn")
