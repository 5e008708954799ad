"""A client whose training diverged goes on from what it kept before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bowl import among_two, fit, kept

from clients.apple import AppleClient
from clients.base import Client, Training
from clients.ditto import DittoClient
from clients.fedala import FedAlaClient
from clients.fedamp import FedAmpClient
from clients.fedbn import FedBnClient
from clients.fedfomo import FedFomoClient
from clients.fedper import FedPerClient
from clients.fedrep import FedRepClient
from clients.local import LocalClient
from clients.moon import MoonClient
from clients.pfedme import PFedMeClient
from strategies.apple import AppleParams
from strategies.ditto import DittoParams
from strategies.fedala import FedAlaParams
from strategies.fedamp import FedAmpParams
from strategies.fedfomo import FedFomoParams
from strategies.fedper import FedPerParams
from strategies.fedrep import FedRepParams
from strategies.moon import MoonParams
from strategies.pfedme import PFedMeParams

ONE_STEP = Training(local_steps=1, batch_size=1)
NINE_STEPS = Training(local_steps=9, batch_size=1)
# What each receives, its settings, and numbers beside the vectors.
KEEPING: dict[type[Client], tuple[list[Any], Any, dict[str, Any]]] = {
    LocalClient: ([], None, {}),
    PFedMeClient: ([[0, 0]], PFedMeParams(personal_lr=0.5), {}),
    FedAmpClient: ([[0.5, 0.5]], FedAmpParams(), {}),
    FedFomoClient: ([[[1, 3]], np.zeros((1, 0))], FedFomoParams(validation=0.2), {"peer_ids": [1]}),
    AppleClient: ([[[0, 2], [2, 0]], [0.5, 0.5]], AppleParams(), {"penalty": 0.0}),
    MoonClient: ([[0, 0]], MoonParams(), {}),
    DittoClient: ([[0, 0]], DittoParams(), {}),
    FedPerClient: ([[0]], FedPerParams(), {}),
    FedRepClient: ([[0]], FedRepParams(head_epochs=1), {}),
    FedBnClient: ([[0, 0]], None, {}),
    FedAlaClient: ([[0, 0]], FedAlaParams(), {}),
}


@pytest.mark.parametrize("cls", KEEPING)
def test_a_model_out_of_the_finite_numbers_is_not_kept(tmp_path: Path, cls: type[Client]) -> None:
    """A rate of 1e30 throws every model away; the next round goes on from what was kept before."""
    vectors, params, numbers = KEEPING[cls]
    fit(cls, among_two(tmp_path, ONE_STEP), *vectors, params=params, **numbers)
    before = kept(tmp_path)
    assert before
    if cls is PFedMeClient:
        params = PFedMeParams(personal_lr=1e30)
    fit(cls, among_two(tmp_path, NINE_STEPS, 2), *vectors, params=params, lr=1e30, **numbers)
    after = kept(tmp_path)
    assert all(np.array_equal(after[name], vector) for name, vector in before.items())
