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
from clients.fedadw import FedAdwClient, discrepancy
from clients.fedala import top_start
from clients.fedavg import FedAvgClient
from clients.fedbac import FedBacClient, cosine_gradient
from clients.freeloader import freeloading
from clients.taco import TacoClient
from fedsuite.core.consensus import consensus, recent, reliability, remember
from fedsuite.core.flat_model import FlatModel
from strategies.feda4 import FedA4Params
from strategies.fedadw import FedAdwParams
from strategies.fedbac import FedBacParams
from strategies.taco import TacoParams
from tasks.models import build_model
from tasks.shapes import DataShape

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
    plain = {"lam": 0.0, "history": 2, "floor": 0.0, "score_clients": False}
    return FedBacParams(**(plain | changes))


Scores = tuple[float, float, float]


def compared(
    folder: Path, momentum: list[float], number: int, counted: int, **changes: Any
) -> Scores:
    """One step from the origin, (1/2, 3/2): its cosine, consensus and reliability."""
    context = place(folder, Training(local_steps=1, batch_size=1), number)
    _, _, sent = fit(
        FedBacClient, context, [0, 0], momentum, params=fedbac(**changes), counted=counted
    )
    return sent["cosine"], sent["consensus"], sent["reliability"]


ALONG_X, ALONG_Y = 1 / math.sqrt(10), 3 / math.sqrt(10)  # of (1/2, 3/2) with (1, 0) and (0, 1)


def test_fedbac_remembers_its_cosines(tmp_path: Path) -> None:
    """No momentum: nothing recorded. Then cosines 1/sqrt(10) and 3/sqrt(10): variance 0.1."""
    momenta = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    seen = [compared(tmp_path, m, t, counted=t - 1) for t, m in enumerate(momenta, start=1)]
    assert seen[0] == (0.0, 0.0, 1.0)
    assert seen[1] == pytest.approx((ALONG_X, ALONG_X, 1.0))
    assert seen[2] == pytest.approx((ALONG_Y, ALONG_Y, math.exp(-0.1)))
    assert seen[3] == pytest.approx((ALONG_Y, ALONG_Y, 1.0))


def test_fedbac_forgets_a_round_that_did_not_count(tmp_path: Path) -> None:
    """The reply of round 2 is lost: in round 3 the cosine of round 1 alone is remembered, so
    there is nothing to vary; with it the variance would be 0.1.
    """
    compared(tmp_path, [0.0, 1.0], 1, counted=0)
    compared(tmp_path, [1.0, 0.0], 2, counted=1)
    assert compared(tmp_path, [0.0, 1.0], 3, counted=1)[2] == 1.0
    assert compared(tmp_path, [1.0, 0.0], 4, counted=3)[2] == pytest.approx(math.exp(-0.1))


def test_fedbac_counts_at_least_the_floor_as_agreement(tmp_path: Path) -> None:
    """Against (-1, 0) the cosine is below the floor 0.2; without a momentum nothing is agreed."""
    assert compared(tmp_path, [-1.0, 0.0], 1, 0, floor=0.2)[1] == pytest.approx(0.2)
    assert compared(tmp_path, [0.0, 0.0], 1, 0, floor=0.2)[1] == 0.0
    assert compared(tmp_path, [1.0, 0.0], 1, 0, floor=0.2)[1] == pytest.approx(ALONG_X)


def test_a_freeloader_of_fedbac_claims_no_agreement_in_its_first_round(tmp_path: Path) -> None:
    context, params = place(tmp_path, TWO_STEPS), fedbac()
    (update,), _, sent = fit(
        freeloading(FedBacClient), context, [0, 0], [0, 1], params=params, counted=0
    )
    assert not update.any() and sent["cosine"] == sent["consensus"] == 0.0


def test_consensus_and_reliability_by_hand() -> None:
    """Floor 0.1 and sharpness 2: 0.01 in place of nothing, 0.25 stays."""
    np.testing.assert_allclose(consensus(np.array([-0.5, 0.5]), 2.0), [0.0, 0.25])
    np.testing.assert_allclose(consensus(np.array([-0.5, 0.5]), 2.0, 0.1), [0.01, 0.25])
    assert reliability(np.zeros(0), 1.0) == reliability(np.array([0.3]), 9.0) == 1.0
    assert reliability(np.array([0.0, 2.0]), 0.5) == pytest.approx(math.exp(-0.5))


def test_the_windows_by_hand() -> None:
    """H = 2, cosines of rounds 1, 4, 5 and 6 with room for three: by values 5 and 6, by rounds
    6-2 to 6. In round 7 not sampled, in round 8 by rounds only 6 is left of these.
    """
    history = np.zeros((3, 2))
    for number in (1, 4, 5, 6):
        history = remember(history, number, number / 10)
    assert recent(history, 6, 2, "values").tolist() == [0.5, 0.6]
    assert recent(history, 6, 2, "rounds").tolist() == [0.4, 0.5, 0.6]
    assert recent(history, 8, 2, "rounds").tolist() == [0.6]
    assert recent(np.zeros((3, 2)), 1, 2, "rounds").tolist() == []


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
    (update,), _, _ = fit(FedBacClient, context, [0, 0], [0, 7], params=fedbac(lam=1.0), counted=0)
    np.testing.assert_allclose(update, [0.655132, 2.281623], atol=1e-5)


@pytest.mark.parametrize("regularizer", ["update", "gradient"])
@pytest.mark.parametrize("length", [1e-3, 5.0, 400.0])
def test_the_length_of_the_momentum_does_not_matter(
    tmp_path: Path, regularizer: str, length: float
) -> None:
    """Along (3, 4)/5, whatever its length: the pull of lam 1 is that of the unit vector."""
    params, momentum = fedbac(lam=1.0, regularizer=regularizer), np.array([0.6, 0.8])
    (unit,), _, _ = fit(
        FedBacClient, place(tmp_path, TWO_STEPS), [0, 0], momentum, params=params, counted=0
    )
    (update,), _, _ = fit(
        FedBacClient,
        place(tmp_path, TWO_STEPS),
        [0, 0],
        momentum * length,
        params=params,
        counted=0,
    )
    np.testing.assert_allclose(update, unit, rtol=1e-5)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, TWO_STEPS), [0, 0])
    assert np.abs(unit - plain).max() > 1e-3


def test_the_gradient_regulariser_pulls_the_step_towards_the_momentum(tmp_path: Path) -> None:
    """One step: g = -x, and -g/|g| = x/|x| with x = (1, 3). The penalty's gradient is
    -lam d/dw cos(x - w, v): with lam 1, v = (0, 1): grad cos by u is (-0.0948683, 0.0316228),
    and u = x - w turns its sign: w gets -lr (g + (-0.0948683, 0.0316228)).
    """
    one = Training(local_steps=1, batch_size=1)
    results = {}
    for printed in (False, True):
        params = fedbac(lam=1.0, regularizer="gradient", printed_sign=printed)
        (update,), _, _ = fit(
            FedBacClient, place(tmp_path, one), [0, 0], [0, 7], params=params, counted=0
        )
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


def test_the_first_learning_has_many_epochs_and_later_ones_have_one(tmp_path: Path) -> None:
    """Round 1 ends at an own top of 1.5. Round 2 receives 4.5: the gap is 3, the bowl's gradient
    by W is 9 (W - 1/2), and with rate 1/18 every epoch halves W - 1/2. Three epochs from 1:
    W = 0.5625, a start of 3.1875, after its step 3.09375. Round 3 receives 6.09375, again 3
    away: W - (-0.03125) is halved once, 0.265625; three times would be 0.04297.
    """
    one = Training(local_steps=1, batch_size=1)
    params = replace(ADW, ala_lr=1 / 18, ala_tolerance=1e-12, ala_max_epochs=3)
    seen = []
    for number, top in enumerate((0.0, 4.5, 6.09375), start=1):
        context = place(tmp_path, one, number)
        _, _, metrics = fit(FedAdwClient, context, [0, top], params=params)
        seen.append((metrics["ala-epochs"], metrics.get("ala-mean", 1.0)))
    assert seen == [(0, 1.0), (3, pytest.approx(0.5625)), (1, pytest.approx(0.265625))]


def test_fedadw_sends_its_mixing_weights_on_request(tmp_path: Path) -> None:
    """One weight of the top layer: 1 before there is anything to mix, then 0 as above."""
    one, params = Training(local_steps=1, batch_size=1), replace(ADW, send_weights=True)
    vectors, _, _ = fit(FedAdwClient, place(tmp_path, one, 1), [0, 0], params=params)
    assert [v.tolist() for v in vectors] == [[0.5, 1.5], [1.0]]
    vectors, _, _ = fit(FedAdwClient, place(tmp_path, one, 2), [0, 0.5], params=params)
    assert vectors[1].tolist() == [0.0]
    cheat = freeloading(FedAdwClient)
    vectors, _, _ = fit(cheat, place(tmp_path, one, 3), [0, 0], params=params)
    assert [len(v) for v in vectors] == [2, 1]


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


def test_where_the_top_layers_start_by_hand(tmp_path: Path) -> None:
    model = place(tmp_path, TWO_STEPS).model
    assert [top_start(model, count) for count in (0, 1, 2, 9)] == [0, 1, 0, 0]


def test_the_top_two_layers_of_resnet18_are_its_last_convolution_and_fc() -> None:
    """From the end: fc 512*10 + 10 = 5130, a batch norm of 2*512, a convolution of 9*512*512."""
    model = FlatModel(build_model("resnet18", DataShape("image", (3, 32, 32), 10), 0))
    tops = [model.size - top_start(model, count) for count in (1, 2)]
    assert tops == [5130, 5130 + 1024 + 9 * 512 * 512]


def test_the_bowl_is_what_it_says(tmp_path: Path) -> None:
    context = place(tmp_path, TWO_STEPS)
    client = type("BowlClient", (Bowl, FedAvgClient), {})(context)
    client.gradients(torch.tensor([[1.0, 3.0]]), torch.zeros(1))
    assert context.model.grads.tolist() == [-1.0, -3.0]
