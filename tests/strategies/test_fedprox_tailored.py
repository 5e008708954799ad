"""FedProx with a coefficient per client, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rounds import meet, play, strategy_of

from clients.fedprox import FedProxClient
from strategies.fedprox_tailored import FedProxTailored


def test_coefficients_by_hand() -> None:
    """Updates (3,0), (0,3), (3,3) have alpha 1/2, 1/2, 0.585786; before a round it is 0.1."""
    strategy = strategy_of(FedProxTailored, clients=4)
    assert strategy.instruction(0).params == {"zeta": pytest.approx(0.09)}
    this_round = play(strategy, [[3, 0], [0, 3], [3, 3]], clients=[0, 1, 3])
    own = [strategy.instruction(c).params["zeta"] for c in range(4)]
    assert own == pytest.approx([0.05, 0.05, 0.09, 0.0414214], abs=1e-6)
    assert this_round.per_client["alpha"] == pytest.approx([0.5, 0.5, 0.585786], abs=1e-6)
    again = strategy_of(FedProxTailored, clients=4)
    again.load_state(strategy.state())
    assert [again.instruction(c).params["zeta"] for c in range(4)] == own


def test_a_state_taken_out_does_not_change_with_later_rounds() -> None:
    strategy, again = strategy_of(FedProxTailored), strategy_of(FedProxTailored)
    again.load_state(strategy.state())
    play(strategy, [[3, 0], [0, 3]])
    assert again.alpha.tolist() == [0.1, 0.1]


@pytest.mark.parametrize("updates", [[[0, 0], [0, 0]], [[1e18, 0], [0, 1e-18]]])
def test_coefficients_stay_between_none_and_all(updates: list[list[float]]) -> None:
    strategy = strategy_of(FedProxTailored)
    play(strategy, updates)
    assert all(0 <= strategy.instruction(c).params["zeta"] <= 0.1 for c in (0, 1))


def test_a_round_on_two_bowls_by_hand(tmp_path: Path) -> None:
    """With zeta 1, alpha 0.1 at first, so 0.9: g = (-1, -3), to (1/2, 3/2);
    g = (-1/2, -3/2) + 0.9 (1/2, 3/2), to (0.525, 1.575). Client 1: (-0.525, 0.525).
    w = (0, 1.05). Lengths 1.660196, 0.742462, cosines 0.948683, 0.707107:
    alpha = 0.293159, 0.488599.
    """
    strategy = strategy_of(FedProxTailored, zeta=1.0)
    meet(strategy, FedProxClient, tmp_path)
    np.testing.assert_allclose(strategy.model, [0, 1.05], atol=1e-6)
    np.testing.assert_allclose(strategy.alpha, [0.293159, 0.488599], atol=1e-5)


def test_it_is_not_fedprox(experiment: Callable[..., Path]) -> None:
    def model(algo: str, **settings: object) -> bytes:
        return (experiment(algo, local_epochs=2, **settings) / "model.safetensors").read_bytes()

    assert model("fedprox-tailored") != model("fedprox")
    assert model("fedprox-tailored") != model("fedprox", **{"fedprox.zeta": 0.09})
