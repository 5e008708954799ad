"""The client sides of the four papers, by hand, on a bowl with its bottom at (1, 3)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Bowl, fit, place

from clients.base import Training
from clients.feda4 import FedA4Client
from clients.fedadw import FedAdwClient, discrepancy, top_layers
from clients.fedavg import FedAvgClient
from clients.fedbac import FedBacClient, consensus, cosine_gradient, reliability
from clients.freeloader import freeloading
from clients.taco import TacoClient
from strategies.feda4 import FedA4Params
from strategies.fedadw import FedAdwParams
from strategies.fedbac import FedBacParams
from strategies.taco import TacoParams

TWO_STEPS = Training(local_steps=2, batch_size=1)


def test_taco_two_steps_by_hand(tmp_path: Path) -> None:
    """Alpha 0.5, Delta (4, 0), K=2 so gamma = 1/2: each gradient gets 0.25 * (4, 0) = (1, 0).

    w=(0,0): g=(-1,-3)+(1,0), w=(0,1.5). g=(-1,-1.5)+(1,0): w=(0,2.25).
    """
    context, params = place(tmp_path, TWO_STEPS), TacoParams(gamma=0.0, correction=True)
    (update,), _, metrics = fit(TacoClient, context, [0, 0], [4, 0], params=params, alpha=0.5)
    assert np.array_equal(update, [0.0, 2.25])
    assert metrics["norm"] == 2.25


def test_taco_without_correction_is_plain_training(tmp_path: Path) -> None:
    context, params = place(tmp_path, TWO_STEPS), TacoParams(gamma=0.5, correction=False)
    (update,), _, _ = fit(TacoClient, context, [0, 0], [4, 0], params=params, alpha=0.5)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, TWO_STEPS), [0, 0])
    assert update.tobytes() == plain.tobytes()


def test_feda4_trajectory_by_hand(tmp_path: Path) -> None:
    """Two epochs of one batch: changes (1/2, 3/2) and (1/4, 3/4), which add up to the update."""
    context = place(tmp_path, Training(local_epochs=2, batch_size=1))
    (update, trajectory), _, _ = fit(
        FedA4Client, context, [0, 0], params=FedA4Params(trajectory="full")
    )
    assert np.array_equal(trajectory, [0.5, 1.5, 0.25, 0.75])
    assert np.array_equal(update, [0.75, 2.25])
    vectors, _, _ = fit(FedA4Client, context, [0, 0], params=FedA4Params(trajectory="compact"))
    assert len(vectors) == 1


def test_a_freeloader_of_feda4_has_a_trajectory_of_the_right_length(tmp_path: Path) -> None:
    context = place(tmp_path, Training(local_epochs=2, batch_size=1))
    vectors, _, _ = fit(
        freeloading(FedA4Client), context, [0, 0], params=FedA4Params(trajectory="full")
    )
    assert [len(v) for v in vectors] == [2, 4]


def fedbac(**changes: Any) -> FedBacParams:
    return FedBacParams(**({"lam": 0.0, "history": 2, "score_clients": False} | changes))


def test_fedbac_remembers_its_cosines(tmp_path: Path) -> None:
    """One step from the origin gives (1/2, 3/2). No momentum: nothing recorded. With (1, 0) the
    cosine is 1/sqrt(10), with (0, 1) 3/sqrt(10): variance 0.1.
    """
    one = Training(local_steps=1, batch_size=1)
    momenta = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    seen = []
    for number, momentum in enumerate(momenta, start=1):
        context = place(tmp_path, one, number)
        _, _, metrics = fit(FedBacClient, context, [0, 0], momentum, params=fedbac())
        seen.append((metrics["cosine"], metrics["consensus"], metrics["reliability"]))
    low, high = 1 / math.sqrt(10), 3 / math.sqrt(10)
    assert seen[0] == (0.0, 0.0, 1.0)
    assert seen[1] == pytest.approx((low, low, 1.0))
    assert seen[2] == pytest.approx((high, high, math.exp(-0.1)))
    assert seen[3] == pytest.approx((high, high, 1.0))


def test_consensus_and_reliability_by_hand() -> None:
    np.testing.assert_allclose(consensus(np.array([-0.5, 0.5]), 2.0), [0.0, 0.25])
    assert reliability(np.zeros(0), 1.0) == reliability(np.array([0.3]), 9.0) == 1.0
    assert reliability(np.array([0.0, 2.0]), 0.5) == pytest.approx(math.exp(-0.5))


def test_the_cosines_gradient_agrees_with_autograd() -> None:
    torch.manual_seed(0)
    update, momentum = (
        torch.randn(5, dtype=torch.double, requires_grad=True),
        torch.randn(5).double(),
    )
    torch.nn.functional.cosine_similarity(update, momentum, dim=0).backward()
    ours = cosine_gradient(update.detach(), momentum / momentum.norm())
    torch.testing.assert_close(ours, update.grad)
    assert not cosine_gradient(torch.zeros(5), momentum.float()).any()


def test_the_update_regulariser_by_hand(tmp_path: Path) -> None:
    """Lam 1, momentum along (0, 1). First step: u = 0, no pull: u = (1/2, 3/2).

    Then cos = 3/sqrt(10), |u|^2 = 5/2; grad cos = (v - u cos/|u|)/|u| = (-0.189737, 0.063246).
    g = (-1/2, -3/2) less that: (-0.310263, -1.563246); u = (0.655132, 2.281623).
    """
    context = place(tmp_path, TWO_STEPS)
    (update,), _, _ = fit(FedBacClient, context, [0, 0], [0, 7], params=fedbac(lam=1.0))
    np.testing.assert_allclose(update, [0.655132, 2.281623], atol=1e-5)


def test_the_gradient_regulariser_pulls_the_step_towards_the_momentum(tmp_path: Path) -> None:
    """One step: g = -x, and -g/|g| = x/|x| with x = (1, 3). The penalty's gradient is
    -lam d/dw cos(x - w, v): with lam 1, v = (0, 1): grad cos by u is (-0.0948683, 0.0316228),
    and u = x - w turns its sign: w gets -lr (g + (-0.0948683, 0.0316228)).
    """
    one = Training(local_steps=1, batch_size=1)
    results = {}
    for printed in (False, True):
        params = fedbac(lam=1.0, regularizer="gradient", printed_sign=printed)
        (update,), _, _ = fit(FedBacClient, place(tmp_path, one), [0, 0], [0, 7], params=params)
        results[printed] = update
    np.testing.assert_allclose(results[False], [0.5 + 0.0474342, 1.5 - 0.0158114], atol=1e-5)
    np.testing.assert_allclose(results[True], [0.5 - 0.0474342, 1.5 + 0.0158114], atol=1e-5)


def test_discrepancy_by_hand() -> None:
    """Uniform 0; one class of four log 4; (3, 1): 3/4 log 1.5 + 1/4 log 0.5 = 0.130812."""
    assert discrepancy(np.array([2, 2, 2])) == 0.0
    assert discrepancy(np.array([5, 0, 0, 0])) == pytest.approx(math.log(4))
    assert discrepancy(np.array([3, 1])) == pytest.approx(0.130812, abs=1e-6)


ADW = FedAdwParams(ala_layers=1, ala_percent=80, ala_lr=0.5, ala_tolerance=1e9, ala_max_epochs=1)


def test_fedadw_mixes_from_its_second_round_on(tmp_path: Path) -> None:
    """Round 1 from (0,0), one step: own model (1/2, 3/2), no mixing yet.

    Round 2 receives (0, 0.5). The low layer takes 0. On top the gap is 0.5 - 1.5 = -1, W = 1
    starts at 0.5; gradient 0.5 - 3 = -2.5, so W <- 1 - 0.5 * (-2.5 * -1) = -0.25, clipped to 0:
    the start is the own 1.5. One step: low 0.5, top 2.25. The update is (0.5, 1.75).
    """
    one = Training(local_steps=1, batch_size=1)
    (first,), _, metrics = fit(FedAdwClient, place(tmp_path, one, 1), [0, 0], params=ADW)
    assert np.array_equal(first, [0.5, 1.5]) and metrics["ala-epochs"] == 0
    assert metrics["discrepancy"] == pytest.approx(math.log(2))
    (second,), _, metrics = fit(FedAdwClient, place(tmp_path, one, 2), [0, 0.5], params=ADW)
    assert np.allclose(second, [0.5, 1.75])
    assert (metrics["ala-mean"], metrics["ala-epochs"]) == (0.0, 1)


def test_the_first_learning_goes_on_until_losses_settle(tmp_path: Path) -> None:
    one = Training(local_steps=1, batch_size=1)
    params = replace(ADW, ala_tolerance=1e9, ala_max_epochs=50)
    epochs = []
    for number in (1, 2, 3):
        context = place(tmp_path, one, number)
        _, _, metrics = fit(FedAdwClient, context, [0, 0.5], params=params)
        epochs.append(metrics["ala-epochs"])
    assert epochs == [0, 10, 1]


def test_static_fedadw_is_plain_training(tmp_path: Path) -> None:
    one = Training(local_steps=1, batch_size=1)
    for number in (1, 2):
        context, params = place(tmp_path, one, number), replace(ADW, adaptive=False)
        (update,), _, _ = fit(FedAdwClient, context, [0, 0.5], params=params)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, one, 2), [0, 0.5])
    assert update.tobytes() == plain.tobytes()


def test_everything_below_stays_trainable_after_mixing(tmp_path: Path) -> None:
    one = Training(local_steps=1, batch_size=1)
    for number in (1, 2):
        context = place(tmp_path, one, number)
        fit(FedAdwClient, context, [0, 0.5], params=ADW)
        assert all(p.requires_grad for p in context.model.module.parameters())


def test_top_layers_by_hand(tmp_path: Path) -> None:
    model = place(tmp_path, TWO_STEPS).model
    assert [top_layers(model, count) for count in (0, 1, 2, 9)] == [0, 1, 0, 0]


def test_the_bowl_is_what_it_says(tmp_path: Path) -> None:
    context = place(tmp_path, TWO_STEPS)
    client = type("BowlClient", (Bowl, FedAvgClient), {})(context)
    client.gradients(torch.tensor([[1.0, 3.0]]), torch.zeros(1))
    assert context.model.grads.tolist() == [-1.0, -3.0]
