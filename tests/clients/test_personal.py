"""The clients of pFedMe, FedAMP, FedFomo and APPLE by hand, on a bowl with its bottom at (1, 3)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Fitted, among_two, fit, kept, place
from hypothesis import given
from hypothesis import strategies as st

from clients.apple import AppleClient, mixture, one_hot, relation_gradient
from clients.base import Client, ClientContext, Training
from clients.fedamp import FedAmpClient
from clients.fedavg import FedAvgClient
from clients.fedfomo import FedFomoClient, first_order_gains, hold_out_validation, shares
from clients.freeloader import freeloading
from clients.local import LocalClient
from clients.pfedme import PFedMeClient, envelope_step, pull
from strategies.apple import AppleParams
from strategies.fedamp import FedAmpParams
from strategies.fedfomo import FedFomoParams
from strategies.pfedme import PFedMeParams

ONE_STEP = Training(local_steps=1, batch_size=1)
TWO_STEPS = Training(local_steps=2, batch_size=1)
NONE: Any = np.zeros((0, 2))
MAGNITUDES = st.sampled_from((0.0, 1e-18, 1.0, 1e18))


# pFedMe

PFEDME = PFedMeParams(lam=1.0, inner_steps=1, personal_lr=0.5)


def test_pfedmes_pull_and_step_by_hand() -> None:
    """Lam 2: 2 * ((3, 1) - (1, 1)) = (4, 0). A step of 1/4 from (1, 1) to (3, 1) is (1.5, 1)."""
    theta, anchor = np.array([3.0, 1.0]), np.array([1.0, 1.0])
    assert pull(theta, anchor, 2.0).tolist() == [4, 0]
    assert envelope_step(anchor, theta, 0.25).tolist() == [1.5, 1]


@given(MAGNITUDES, MAGNITUDES)
def test_pfedmes_functions_stay_finite(a: float, b: float) -> None:
    one, two = np.full(2, a, np.float32), np.full(2, -b, np.float32)
    assert np.isfinite(pull(one, two, 15.0)).all()
    assert np.isfinite(envelope_step(one, two, 1.5)).all()


def test_pfedme_two_batches_by_hand(tmp_path: Path) -> None:
    """Lam 1, one inner step, both rates 1/2, from (0, 0).

    Batch 1: theta = (0.5, 1.5), no pull yet; w_i = theta/2 = (0.25, 0.75).
    Batch 2: g = (-0.5, -1.5), pull = theta - w_i = (0.25, 0.75); theta = (0.625, 1.875);
    w_i = w_i + (theta - w_i)/2 = (0.4375, 1.3125). Were the anchor theta itself there would be no
    pull and theta would be (0.75, 2.25).
    """
    (update,), _, metrics = fit(PFedMeClient, place(tmp_path, TWO_STEPS), [0, 0], params=PFEDME)
    assert np.array_equal(update, [0.4375, 1.3125])
    assert np.array_equal(kept(tmp_path)["theta"], [0.625, 1.875])
    assert (metrics["steps"], metrics["loss"]) == (2, (5 + 1.25) / 2)


def test_pfedme_may_keep_its_copy_of_the_global_model_instead(tmp_path: Path) -> None:
    """The two batches above: w_i = (0.4375, 1.3125) is kept in place of theta."""
    params = dataclasses.replace(PFEDME, scored="w")
    (update,), _, _ = fit(PFedMeClient, place(tmp_path, TWO_STEPS), [0, 0], params=params)
    assert np.array_equal(update, [0.4375, 1.3125])
    assert np.array_equal(kept(tmp_path)["theta"], update)


def test_pfedmes_inner_steps_by_hand(tmp_path: Path) -> None:
    """Two inner steps on one batch: theta = (0.5, 1.5), then g = (-0.5, -1.5) and pull
    (0.5, 1.5) cancel: theta stays; w_i = (0.25, 0.75), once per batch.
    """
    params = dataclasses.replace(PFEDME, inner_steps=2)
    (update,), _, _ = fit(PFedMeClient, place(tmp_path, ONE_STEP), [0, 0], params=params)
    assert np.array_equal(update, [0.25, 0.75])
    assert np.array_equal(kept(tmp_path)["theta"], [0.5, 1.5])


def test_pfedme_without_inner_steps_is_plain_training(tmp_path: Path) -> None:
    params = dataclasses.replace(PFEDME, inner_steps=0)
    (update,), _, _ = fit(PFedMeClient, place(tmp_path, TWO_STEPS), [0.1, 0.2], params=params)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, TWO_STEPS), [0.1, 0.2])
    assert update.tobytes() == plain.tobytes()


# FedAMP

FEDAMP = FedAmpParams(lam=2.0, alpha=4.0)


def test_fedamp_two_rounds_by_hand(tmp_path: Path) -> None:
    """Round 1 has no cloud model: one step to (0.5, 1.5).

    Round 2, cloud (0.5, 0.5), lam/alpha 1/2: g = (-0.5, -1.5) and pull (0, 0.5) make
    (-0.5, -1): the model is (0.75, 2). Without the pull's gradient it would be (0.75, 2.25).
    """
    (first,), _, _ = fit(FedAmpClient, place(tmp_path, ONE_STEP), [], params=FEDAMP)
    assert np.array_equal(first, [0.5, 1.5])
    (second,), _, _ = fit(FedAmpClient, place(tmp_path, ONE_STEP, 2), [0.5, 0.5], params=FEDAMP)
    assert np.array_equal(second, [0.75, 2.0])
    assert np.array_equal(kept(tmp_path)["model"], [0.75, 2.0])


def test_fedamp_without_its_pull_is_local(tmp_path: Path) -> None:
    off = FedAmpParams(lam=0.0, alpha=1.0)
    for number in (1, 2):
        fit(FedAmpClient, place(tmp_path / "a", TWO_STEPS, number), [5, 5], params=off)
        fit(LocalClient, place(tmp_path / "b", TWO_STEPS, number))
    assert kept(tmp_path / "a")["model"].tobytes() == kept(tmp_path / "b")["model"].tobytes()


# FedFomo


FEDFOMO = FedFomoParams(validation=0.2)


def fomo(context: ClientContext, peers: Any = NONE, ids: tuple[int, ...] = ()) -> Fitted:
    statistics = np.zeros((len(peers), 0))
    return fit(FedFomoClient, context, peers, statistics, params=FEDFOMO, peer_ids=list(ids))


def test_gains_and_shares_by_hand() -> None:
    """From loss 5: losses 3, 5, 6 and 1 at distances 1, 2, 1 and 2 gain 2, 0, -1 and 2."""
    gains = first_order_gains(5.0, np.array([3.0, 5, 6, 1]), np.array([1.0, 2, 1, 2]))
    assert gains.tolist() == [2, 0, -1, 2]
    assert shares(gains).tolist() == [0.5, 0, 0, 0.5]
    assert shares(np.array([-1.0, 0])).tolist() == [0, 0]
    assert shares(np.zeros(0)).tolist() == []


def test_no_distance_and_no_finite_loss_are_no_division() -> None:
    """The same model gains 0; a loss out of the finite numbers is as bad as can be."""
    losses = np.array([3.0, np.nan, np.inf, 4.0])
    gains = first_order_gains(5.0, losses, np.array([0.0, 1, 1, 1]))
    assert gains.tolist() == [0, -1e18, -1e18, 1]
    assert first_order_gains(np.inf, np.array([np.inf, 1]), np.ones(2)).tolist() == [0, 1e18]


@given(
    st.lists(st.tuples(st.floats(0, 1e18), MAGNITUDES), min_size=1, max_size=6),
    st.floats(0, 1e18),
)
def test_gains_are_finite_and_weights_are_shares(
    rows: list[tuple[float, float]], loss: float
) -> None:
    losses, distances = (np.array(column) for column in zip(*rows, strict=True))
    gains = first_order_gains(loss, losses, distances)
    weights = shares(gains)
    assert np.isfinite(gains).all() and (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0) or not weights.any()
    backward = first_order_gains(loss, losses[::-1], distances[::-1])
    np.testing.assert_allclose(shares(backward)[::-1], weights)


def test_fedfomo_two_rounds_by_hand(tmp_path: Path) -> None:
    """Round 1 begins at (0, 0), where the loss is 5, and ends at (0.5, 1.5), where it is 1.25.

    Round 2 receives (1, 3), loss 0. Own gain 3.75/sqrt(2.5), the other's 5/sqrt(10): as 3 to 2.
    The mixture is 0.6 (0.5, 1.5) + 0.4 (1, 3) = (0.7, 2.1), one step further (0.85, 2.55).
    """
    (first, _, gains), _, _ = fomo(among_two(tmp_path, ONE_STEP))
    assert np.array_equal(first, [0.5, 1.5]) and not gains.any()
    answer, _, metrics = fomo(among_two(tmp_path, ONE_STEP, 2), [[1, 3]], (1,))
    np.testing.assert_allclose(answer[0], [0.85, 2.55], rtol=1e-6)
    assert answer[1].shape == (0,)
    np.testing.assert_allclose(answer[2], [0, 5 / math.sqrt(10)], rtol=1e-6)
    assert metrics["own-weight"] == pytest.approx(0.6)
    np.testing.assert_allclose(kept(tmp_path)["start"], [0.7, 2.1], rtol=1e-6)


def test_fedfomo_goes_on_alone_where_nobody_helps(tmp_path: Path) -> None:
    """The own model is the start itself (no step was made) and the other is worse: no gain at all,
    so it starts from its own model.
    """
    context = among_two(tmp_path, ONE_STEP)
    own = np.array([2, 3], np.float32)
    context.state.save({"model": own, "buffers": own[:0], "start": own, "start_buffers": own[:0]})
    answer, _, metrics = fomo(among_two(tmp_path, ONE_STEP, 2), [[9, 9]], (1,))
    assert np.array_equal(answer[0], [1.5, 3]) and answer[2][1] < 0
    assert metrics["own-weight"] == 1.0


def test_fedfomo_among_identical_models_is_finite(tmp_path: Path) -> None:
    fomo(among_two(tmp_path, ONE_STEP))
    own = kept(tmp_path)
    start = own["start"]
    answer, _, _ = fomo(among_two(tmp_path, ONE_STEP, 2), [start, own["model"]], (0, 1))
    assert all(np.isfinite(vector).all() for vector in answer)


def test_a_newcomer_to_fedfomo_starts_from_what_helps(tmp_path: Path) -> None:
    """No own model yet: from (0, 0) the received (1, 3) gains, so it starts there and stays."""
    answer, _, metrics = fomo(among_two(tmp_path, ONE_STEP), [[1, 3]], (1,))
    assert np.array_equal(answer[0], [1, 3]) and metrics["own-weight"] == 0.0


def test_held_out_rows_by_hand() -> None:
    """A fifth of 10 rows is 2; the parts are disjoint and together all; two rows spare none."""
    rows = np.arange(100, 110)
    kept_rows, held = hold_out_validation(rows, 0.2, np.random.default_rng(0))
    assert (len(kept_rows), len(held)) == (8, 2)
    assert sorted([*kept_rows, *held]) == list(rows)
    again = hold_out_validation(rows, 0.2, np.random.default_rng(0))
    assert np.array_equal(again[0], kept_rows) and np.array_equal(again[1], held)
    for few, share in ((rows[:1], 0.2), (rows[:2], 0.2), (rows, 0.0)):
        assert all(np.array_equal(part, few) for part in hold_out_validation(few, share, None))  # type: ignore[arg-type]


@given(st.integers(3, 50), st.floats(0.01, 0.9))
def test_some_rows_are_held_out_and_two_are_left(count: int, share: float) -> None:
    kept_rows, held = hold_out_validation(np.arange(count), share, np.random.default_rng(1))
    assert len(held) >= 1 and len(kept_rows) >= 2 and len(held) + len(kept_rows) == count


def test_fedfomo_judges_on_training_rows_it_never_trains_on(tmp_path: Path) -> None:
    """Rows 0-9 train, 10-14 are the own test. What is read in training mode and what in
    evaluation mode, over three rounds, are two disjoint parts of the former.
    """
    seen: dict[bool, set[int]] = {True: set(), False: set()}
    for number in (1, 2, 3):
        context = place(tmp_path, Training(local_epochs=2, batch_size=4), number)
        model = context.model

        def read(indices: np.ndarray, model: Any = model) -> tuple[torch.Tensor, torch.Tensor]:
            seen[model.module.training] |= set(indices.tolist())
            return torch.ones(len(indices), 2), torch.zeros(len(indices))

        split = SimpleNamespace(train=[np.arange(10)] * 2, own_test=[np.arange(10, 15)] * 2)
        task: Any = SimpleNamespace(rows=read, split=split)
        _, count, _ = fomo(dataclasses.replace(context, task=task), [[1, 3]], (1,))
        assert count == 8
    assert len(seen[False]) == 2 and len(seen[True]) == 8
    assert seen[False] | seen[True] == set(range(10))


# APPLE

APPLE = AppleParams(p_lr=0.1, start="shares")


def test_mixture_and_relation_gradient_by_hand() -> None:
    """Cores (0, 2) and (2, 0), p (0.9, 0.5): (1, 1.8). With g = (0, -2) the products are -4 and 0;
    away from shares (0.5, 0.5) by (0.4, 0), at penalty 2: -3.2 and 0.
    """
    cores, p = np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([0.9, 0.5])
    np.testing.assert_allclose(mixture(p, cores), [1, 1.8])
    slope = relation_gradient(p, cores, np.array([0.0, -2.0]), np.full(2, 0.5), 2.0)
    np.testing.assert_allclose(slope, [-3.2, 0])
    assert one_hot(1, 3).tolist() == [0, 1, 0]


@given(MAGNITUDES, MAGNITUDES, st.permutations(range(3)))
def test_apples_functions_stay_finite_and_follow_the_clients(
    a: float, b: float, order: list[int]
) -> None:
    cores = np.array([[a, -b], [b, 1], [0.5, a]], np.float32)
    p, grad = np.array([0.2, 0.3, 0.5], np.float32), np.array([b, -1], np.float32)
    slope = relation_gradient(p, cores, grad, p[::-1], 0.1)
    assert np.isfinite(slope).all() and np.isfinite(mixture(p, cores)).all()
    moved = relation_gradient(p[order], cores[order], grad, p[::-1][order], 0.1)
    np.testing.assert_allclose(moved, slope[order], rtol=1e-6)


def test_apple_one_step_by_hand(tmp_path: Path) -> None:
    """Cores (0, 2) and (2, 0), p = (1/2, 1/2): the personal model is (1, 1), g = (0, -2).

    Own core: (0, 2) - 0.5 * 0.5 * (0, -2) = (0, 2.5). Relations: (0.5, 0.5) - 0.1 (-4, 0) =
    (0.9, 0.5). The personal model is then 0.9 (0, 2.5) + 0.5 (2, 0) = (1, 2.25).
    """
    context, cores = among_two(tmp_path, ONE_STEP), [[0, 2], [2, 0]]
    answer, _, metrics = fit(AppleClient, context, cores, [0.5, 0.5], params=APPLE, penalty=0.0)
    np.testing.assert_allclose(answer[0], [0, 2.5])
    own = kept(tmp_path)
    np.testing.assert_allclose(own["p"], [0.9, 0.5], rtol=1e-6)
    np.testing.assert_allclose(own["model"], [1, 2.25], rtol=1e-6)
    assert metrics["p-own"] == pytest.approx(0.9)


def test_apple_goes_on_from_its_relations(tmp_path: Path) -> None:
    """After the step above, (1, 2.25): g = (0, -0.75); p (0.9, 0.5) - 0.1 (-1.875, 0)."""
    for number in (1, 2):
        context = among_two(tmp_path, ONE_STEP, number)
        fit(AppleClient, context, [[0, 2], [2, 0]], [0.5, 0.5], params=APPLE, penalty=0.0)
    np.testing.assert_allclose(kept(tmp_path)["p"], [1.0875, 0.5], rtol=1e-6)


def test_apples_penalty_pulls_relations_back(tmp_path: Path) -> None:
    """From p = (1, 0) with a penalty of 1 towards (1/2, 1/2): core (0, 2), g = (-1, -1), products
    -2 and -2; p - 0.1 (-2 + 0.5, -2 - 0.5) = (1.15, 0.25).
    """
    context, params = among_two(tmp_path, ONE_STEP), dataclasses.replace(APPLE, start="own")
    fit(AppleClient, context, [[0, 2], [2, 0]], [0.5, 0.5], params=params, penalty=1.0)
    np.testing.assert_allclose(kept(tmp_path)["p"], [1.15, 0.25], rtol=1e-6)


# All of them

CLIENTS: dict[type[Client], tuple[list[Any], dict[str, Any]]] = {
    PFedMeClient: ([[0, 0]], {"params": PFEDME}),
    FedAmpClient: ([[0.5, 0.5]], {"params": FEDAMP}),
    FedFomoClient: ([[[1, 3]], np.zeros((1, 0))], {"params": FEDFOMO, "peer_ids": [1]}),
    AppleClient: ([[[0, 2], [2, 0]], [0.5, 0.5]], {"params": APPLE, "penalty": 0.0}),
}


@pytest.mark.parametrize("cls", CLIENTS)
def test_clients_of_one_process_share_nothing(tmp_path: Path, cls: type[Client]) -> None:
    """Client 1 answers and keeps the same, alone or after client 0 has used the same workspace."""
    vectors, settings = CLIENTS[cls]
    answers, states = [], []
    for folder, before in (("alone", False), ("after", True)):
        answer = None
        for number in (1, 2):
            context = among_two(tmp_path / folder, TWO_STEPS, number, client=1)
            if before:
                other = among_two(tmp_path / folder, TWO_STEPS, number, client=0)
                moved = [np.array(vector) + 0.5 for vector in vectors]
                fit(cls, dataclasses.replace(other, model=context.model), *moved, **settings)
            answer, _, _ = fit(cls, context, *vectors, **settings)
        answers.append([vector.tobytes() for vector in answer or []])
        states.append({k: v.tobytes() for k, v in kept(tmp_path / folder, 1).items()})
    assert answers[0] == answers[1] and states[0] == states[1]


@pytest.mark.parametrize("cls", CLIENTS)
def test_freeloaders_answer_in_the_right_shape(tmp_path: Path, cls: type[Client]) -> None:
    vectors, settings = CLIENTS[cls]
    context = among_two(tmp_path, TWO_STEPS)
    answer, _, _ = fit(freeloading(cls), context, *vectors, **settings)
    client = cls(context, settings["params"])
    assert [len(vector) for vector in answer] == [client.length(name) for name in cls.sends]
    assert not any(vector.any() for vector in answer)


def test_fedfomo_judges_models_on_every_row_held_out(tmp_path: Path) -> None:
    """Rows x = 0 .. 599, loss the mean of x: 300 held out, in batches of 256, count each once."""
    context = place(tmp_path, ONE_STEP)
    split = SimpleNamespace(train=[np.arange(600)] * 2, own_test=[np.arange(600)] * 2)

    def read(indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(indices, dtype=torch.float64), torch.zeros(len(indices))

    class Mean(FedFomoClient):
        def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.mean()

    task: Any = SimpleNamespace(rows=read, split=split)
    client = Mean(dataclasses.replace(context, task=task), FedFomoParams(validation=0.5))
    held = client._parts[1]
    assert len(held) == 300 and client.num_examples == 300
    start = context.initial
    assert client._held_out_loss(start, start[:0]) == pytest.approx(held.mean())
    assert (client.length("gains"), client.length("statistics"), client.length("update")) == (
        2,
        0,
        2,
    )
