"""FedNova by hand, with its correction for momentum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rounds import play, strategy_of

from clients.optim import SGD
from fedsuite.core.files import read_lines
from fedsuite.core.vector import sample_weights
from strategies.fednova import FedNova, gradients_in, normalised

Experiment = Callable[..., Path]


def test_one_and_three_steps_by_hand() -> None:
    """(2, 0) and (0, 6)/3 are (1, 1) on average, times the 2 steps of the mean client."""
    strategy = strategy_of(FedNova)
    this_round = play(strategy, [[2, 0], [0, 6]], steps=[1, 3])
    assert strategy.model.tolist() == [2, 2]
    assert this_round.per_client["weight"].tolist() == pytest.approx([1, 1 / 3])


def test_samples_count() -> None:
    """P = (1/4, 3/4), 1 and 3 steps: tau_eff 5/2 times (4/4, 3 * 4/(4 * 3)) = (1, 1)."""
    strategy = strategy_of(FedNova)
    play(strategy, [[4, 0], [0, 4]], steps=[1, 3], examples=[1, 3])
    np.testing.assert_allclose(strategy.model, [2.5, 2.5], rtol=1e-6)


def test_momentum_is_corrected_for_by_hand() -> None:
    """Rho 1/2: |a| is 1 after one step and 1 + 3/2 + 7/4 = 17/4 after three; tau_eff 21/8."""
    strategy = strategy_of(FedNova, info={"momentum": 0.5})
    play(strategy, [[2, 0], [0, 8.5]], steps=[1, 3])
    np.testing.assert_allclose(strategy.model, [2.625, 2.625], rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_a_constant_gradient_is_found_again_whatever_the_steps(momentum: float) -> None:
    """On a slope of 1 every client's update is ``-lr |a_i|``, with the optimiser that trains."""
    for steps in (1, 2, 5, 20):
        weights, grads = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        optimizer = SGD(weights, grads, momentum)
        for _ in range(steps):
            optimizer.step(0.5)
        (count,) = gradients_in(np.array([steps]), momentum)
        assert weights.item() / count == pytest.approx(-0.5)


def test_the_same_steps_are_fedavg_to_the_bit() -> None:
    shares = sample_weights(np.array([1, 2, 4]))
    assert normalised(shares, gradients_in(np.array([7, 7, 7]), 0.9)) is shares
    assert gradients_in(np.array([0, 1]), 0.0).tolist() == [1, 1], "no step counts as one"


def test_who_lies_about_its_steps_multiplies_the_others_updates() -> None:
    """Shares 1/2, steps 10 and 10^9: tau_eff is 5 * 10^8, of which the honest client gets a
    twentieth, 2.5 * 10^7, and the liar 1/4.
    """
    strategy = strategy_of(FedNova)
    play(strategy, [[1, 0], [0, 1]], steps=[10, 1e9])
    np.testing.assert_allclose(strategy.model, [2.5e7, 0.25], rtol=1e-6)


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_whole_runs(experiment: Experiment) -> None:
    """With steps for all alike it is FedAvg; with epochs over parts of other sizes it is not."""
    same = {"local_steps": 2, "partition": "sizes"}
    assert model(experiment("fednova", **same)) == model(experiment("fedavg", **same))
    epochs = {"partition": "sizes", "num_rounds": 1}
    assert model(experiment("fednova", **epochs)) != model(experiment("fedavg", **epochs))


@pytest.mark.parametrize(
    ("settings", "momentum"), [({}, 0.9), ({"optimizer": "adam", "lr": 0.001}, 0.0)]
)
def test_the_server_counts_the_momentum_that_clients_have(
    experiment: Experiment, settings: dict[str, object], momentum: float
) -> None:
    """Adam has none, even where a record of the settings has one."""
    folder = experiment("fednova", partition="sizes", num_rounds=1, momentum=0.9, **settings)
    rows = read_lines(folder / "clients.jsonl")
    counts = gradients_in(np.array([row["steps"] for row in rows]), momentum)
    shares = sample_weights(np.array([row["num_examples"] for row in rows]))
    expected = shares * (shares @ counts) / counts
    assert len(set(counts)) > 1
    np.testing.assert_allclose([row["weight"] for row in rows], expected, rtol=1e-9)
