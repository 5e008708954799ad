"""APPLE's client by hand: a grown federation, several steps, an initial model that is not zero."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bowl import Fitted, fit, place

from clients.apple import AppleClient
from clients.base import Client, Training
from clients.fedamp import FedAmpClient
from clients.fedfomo import FedFomoClient
from clients.local import LocalClient
from clients.pfedme import PFedMeClient
from clients.state import ClientState
from strategies.apple import AppleParams
from strategies.fedamp import FedAmpParams
from strategies.fedfomo import FedFomoParams
from strategies.pfedme import PFedMeParams

ONE_STEP = Training(local_steps=1, batch_size=1)
CORES = [[0, 2], [2, 0]]


def apple(
    folder: Path, cores: Any, shares: Any, number: int = 1, steps: int = 1, start: str = "shares"
) -> Fitted:
    context = place(folder, Training(local_steps=steps, batch_size=1), number)
    params = AppleParams(p_lr=0.1, start=start)
    return fit(AppleClient, context, cores, shares, params=params, penalty=0.0)


@pytest.mark.parametrize(
    ("start", "expected"), [("shares", [0.9625, 0.5, 0.525]), ("own", [1.0875, 0.5, 0.075])]
)
def test_a_client_that_joins_adds_a_relation_to_those_kept(
    tmp_path: Path, start: str, expected: list[float]
) -> None:
    """After one step, (1, 1) to (1, 9/4), p = (0.9, 0.5) and the own core (0, 5/2) are kept.

    A third core (0, 1) joins with its share, 1/2: personal model (1, 11/4), g = (0, -1/4), products
    -0.625, 0, -0.25. If only the own core counts at first it is as before, (1, 9/4): g = (0, -3/4),
    products -1.875, 0, -0.75.
    """
    apple(tmp_path, CORES, [0.5, 0.5])
    _, _, metrics = apple(tmp_path, [*CORES, [0, 1]], [0.25, 0.25, 0.5], number=2, start=start)
    p = ClientState(tmp_path, 0, 99, 0).load()["p"]
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    assert metrics["p-sum"] == pytest.approx(sum(expected))


def test_two_steps_in_one_round(tmp_path: Path) -> None:
    """Loss 2 at (1, 1) and (3/4)^2 / 2 at (1, 9/4); the core moves by 1/2 of 0.9 (0, 3/4) more."""
    (update,), _, metrics = apple(tmp_path, CORES, [0.5, 0.5], steps=2)
    np.testing.assert_allclose(update, [0, 2.8375], rtol=1e-6)
    assert metrics["steps"] == 2 and metrics["loss"] == pytest.approx((2 + 0.28125) / 2)


FROM_INITIAL: dict[type[Client], tuple[list[Any], dict[str, Any], list[float]]] = {
    FedAmpClient: ([[]], {"params": FedAmpParams()}, [0, 1]),
    FedFomoClient: (
        [np.zeros((0, 2)), np.zeros((0, 0))],
        {"params": FedFomoParams(), "peer_ids": []},
        [0, 1],
    ),
    AppleClient: ([[[2, 2]], [1.0]], {"params": AppleParams(), "penalty": 0.0}, [0.5, 1.5]),
}


@pytest.mark.parametrize("cls", FROM_INITIAL)
def test_an_update_is_from_the_runs_first_model(tmp_path: Path, cls: type[Client]) -> None:
    """That is (1, 1), bottom (1, 3): half of the way up is (0, 1). APPLE's core (2, 2) moves by
    -(1, -1)/2 to (1.5, 2.5).
    """
    vectors, settings, expected = FROM_INITIAL[cls]
    first = np.ones(2, np.float32)
    context = dataclasses.replace(place(tmp_path, ONE_STEP), initial=first)
    sent, _, _ = fit(cls, context, *vectors, **settings)
    assert sent[0].tolist() == expected


@pytest.mark.parametrize(
    ("cls", "vectors", "name", "settings"),
    [
        (LocalClient, [], "model", {}),
        (PFedMeClient, [[1, 0]], "theta", {"params": PFedMeParams(personal_lr=1e30)}),
    ],
)
def test_one_number_that_is_not_finite_is_enough_to_keep_no_model(
    tmp_path: Path, cls: type[Client], vectors: list[Any], name: str, settings: dict[str, Any]
) -> None:
    """From (1, 0) on the bowl of (1, 3) only the second number moves, and out of all bounds."""
    nine = Training(local_steps=9, batch_size=1)
    context = dataclasses.replace(place(tmp_path, nine), initial=np.array([1, 0], np.float32))
    fit(cls, context, *vectors, lr=1e30, **settings)
    assert np.isfinite(context.model.vector()[0]) and not np.isfinite(context.model.vector()[1])
    assert name not in ClientState(tmp_path, 0, 99, 0).load()
