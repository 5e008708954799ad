"""Server momentum and adaptive server steps by hand, over rounds and restarts."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rounds import play, strategy_of

from strategies.fedavgm import FedAvgM
from strategies.fedopt import AdaptiveServer, FedAdagrad, FedAdam, FedYogi

Experiment = Callable[..., Path]


def test_momentum_by_hand() -> None:
    """Mean updates (1, 2) and (1, 1), beta 1/2: m = (1, 2), then (3/2, 2)."""
    strategy = strategy_of(FedAvgM, beta=0.5)
    play(strategy, [[2, 0], [0, 4]])
    assert strategy.model.tolist() == [1, 2]
    play(strategy, [[1, 1], [1, 1]], number=2)
    assert strategy.model.tolist() == [2.5, 4]
    assert strategy.momentum.tolist() == [1.5, 2]


def test_momentum_multiplies_with_the_servers_rate_once() -> None:
    """server_lr 2 doubles every move, and is not in the momentum."""
    strategy = strategy_of(FedAvgM, info={"server_lr": 2.0}, beta=0.5)
    play(strategy, [[1, 2]])
    play(strategy, [[1, 1]], number=2)
    assert strategy.momentum.tolist() == [1.5, 2]
    assert strategy.model.tolist() == [5, 8]


def test_adam_by_hand() -> None:
    """beta1 1/2, beta2 3/4, tau 1, eta 2. D = (1, 3): m = (1/2, 3/2), s = 3/4 + D^2/4 = (1, 3);
    then D = (1, 3) again: m = (3/4, 9/4), s = (1, 9/4 + 9/4).
    """
    strategy = strategy_of(FedAdam, beta1=0.5, beta2=0.75, tau=1.0, eta=2.0)
    play(strategy, [[0, 3], [2, 3]])
    first = np.array([0.5, 3 / (sqrt(3) + 1)])
    np.testing.assert_allclose(strategy.model, first, rtol=1e-6)
    play(strategy, [[1, 3]], number=2)
    second = np.array([0.75, 4.5 / (sqrt(4.5) + 1)])
    np.testing.assert_allclose(strategy.model, first + second, rtol=1e-6)


def test_yogi_by_hand() -> None:
    """S starts at tau^2 = 1. D = 2, beta2 1/4: s = 1 + 3/4 * 4 = 4; m = 1; 3 * 1/(2 + 1) = 1.
    D = 1/2: s = 1 - 3/4 * 1/4 = 13/16, where Adam's would be 1/4 + 3/16 = 7/16.
    """
    strategy = strategy_of(FedYogi, beta1=0.5, beta2=0.25, tau=1.0, eta=3.0)
    play(strategy, [[2, 0.5]])
    assert strategy.square.tolist() == [4, 13 / 16]
    assert strategy.model[0] == 1
    assert strategy.model[1] == pytest.approx(0.75 / (sqrt(13) / 4 + 1))


def test_adagrad_by_hand() -> None:
    """With tau 3, eta 2, no momentum. D = 4: s = 9 + 16 = 25, 2 * 4/(5 + 3) = 1; D = 12: s = 169,
    2 * 12/(13 + 3) = 3/2. A coordinate that does not move stays.
    """
    strategy = strategy_of(FedAdagrad, tau=3.0, eta=2.0)
    play(strategy, [[4, 0]])
    assert strategy.model.tolist() == [1, 0]
    play(strategy, [[12, 0]], number=2)
    assert strategy.model.tolist() == [2.5, 0]
    assert strategy.square.tolist() == [169, 9]


@pytest.mark.parametrize(
    ("corrected", "step"), [(False, 1e-3 / 2.410674e-3), (True, 1e-2 / 1.1e-2)]
)
def test_the_bias_of_adams_first_round(corrected: bool, step: float) -> None:
    """D = 0.01 and published settings. As printed m = 1e-3 and s = 0.99e-6 + 0.01e-4 = 1.99e-6,
    whose root is 1.410674e-3. With the correction m = 1e-2 and s = 1e-4, and tau^2 is in neither.
    """
    strategy = strategy_of(FedAdam, bias_correction=corrected)
    play(strategy, [[0.01, 0.01]])
    np.testing.assert_allclose(strategy.model, 0.1 * step, rtol=1e-5)


def test_a_corrected_constant_update_is_the_same_step_in_every_round() -> None:
    """D = 1: both means are 1 after the correction, in each round eta/(1 + tau)."""
    strategy = strategy_of(FedAdam, bias_correction=True)
    for number in (1, 2, 3):
        play(strategy, [[1, 1]], number=number)
        np.testing.assert_allclose(strategy.model, number * 0.1 / 1.001, rtol=1e-5)


@pytest.mark.parametrize("cls", [FedAdam, FedYogi, FedAdagrad])
def test_updates_count_by_samples(cls: type[AdaptiveServer]) -> None:
    """(4, 0) of one sample and (0, 4) of three are (1, 3)."""
    by_samples, given = strategy_of(cls), strategy_of(cls)
    this_round = play(by_samples, [[4, 0], [0, 4]], examples=[1, 3])
    play(given, [[1, 3]])
    assert by_samples.model.tolist() == given.model.tolist()
    assert this_round.per_client["weight"].tolist() == [0.25, 0.75]


@pytest.mark.parametrize("cls", [FedAvgM, FedAdam, FedYogi, FedAdagrad])
def test_a_restart_changes_nothing(cls: type[FedAvgM | AdaptiveServer]) -> None:
    params: dict[str, Any] = {"bias_correction": True} if cls is FedAdam else {}
    strategy, again = strategy_of(cls, **params), strategy_of(cls, **params)
    play(strategy, [[3, 1], [1, 0]])
    again.load_state(strategy.state())
    again.model = strategy.model
    for one in (strategy, again):
        play(one, [[1, -2], [0, 3]], number=2)
    assert strategy.model.tobytes() == again.model.tobytes()


def test_momentum_off_is_fedavg_and_on_is_not(experiment: Experiment) -> None:
    def model(algo: str, **settings: object) -> bytes:
        folder = experiment(algo, local_steps=1, partition="sizes", **settings)
        return (folder / "model.safetensors").read_bytes()

    plain = model("fedavg")
    assert model("fedavgm", **{"fedavgm.beta": 0}) == plain
    assert len({plain, *map(model, ("fedavgm", "fedadam", "fedyogi", "fedadagrad"))}) == 5
