"""FedDUAL's server by hand, the barycentre's properties, and whole runs against FedAvg."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.vector import Doubles, Matrix, last_layer, norms, sample_weights
from strategies.base import Round, RunInfo
from strategies.feddual import FedDual, FedDualParams, barycentre

Experiment = Callable[..., Path]
OFF = {"feddual.adaptive_loss": False, "feddual.barycentre": False}


def test_barycentre_by_hand() -> None:
    """(4, 0) and (0, 4) hold the same values 0 and 4. Their means are 1 and 3: 4 goes second.

    (0, 4) and (2, 1): smallest (0 + 1)/2, largest (4 + 2)/2, and the means 1 < 2.5.
    """
    swapped = np.array([[4, 0], [0, 4]], np.float32)
    assert np.array_equal(barycentre(swapped, np.array([0.25, 0.75])), [0, 4])
    assert np.array_equal(barycentre(swapped, np.array([0.75, 0.25])), [4, 0])
    uneven = np.array([[0, 4], [2, 1]], np.float32)
    assert np.array_equal(barycentre(uneven, np.array([0.5, 0.5])), [0.5, 3])


def test_entries_with_the_same_mean_move_the_same() -> None:
    """(1, -1) and (-1, 1) cancel: values -1 and 1 have no place of their own, so nothing moves.

    With a third entry of mean 5 (values 5 and 5) only the other two share.
    """
    rows = np.array([[1, -1, 5], [-1, 1, 5]], np.float32)
    assert np.array_equal(barycentre(rows[:, :2], np.array([0.5, 0.5])), [0, 0])
    assert np.array_equal(barycentre(rows, np.array([0.5, 0.5])), [0, 0, 5])


@st.composite
def updates(draw: st.DrawFn) -> tuple[Matrix, Doubles]:
    count, size = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    scale = draw(st.sampled_from((0.0, 1e-18, 1.0, 1e18)))
    numbers = st.lists(st.floats(-1, 1, width=32), min_size=size, max_size=size)
    rows = np.array([draw(numbers) for _ in range(count)], np.float32) * np.float32(scale)
    return rows, sample_weights(np.array([draw(st.integers(1, 9)) for _ in range(count)]))


@given(updates())
def test_the_barycentre_keeps_the_sum_and_does_not_shrink(
    case: tuple[Matrix, Doubles],
) -> None:
    """It lies between the mean (which shrinks) and the clients' mean square."""
    rows, weights = case
    result = barycentre(rows, weights).astype(np.float64)
    mean = weights @ rows.astype(np.float64)
    least = float(np.finfo(np.float32).smallest_subnormal)
    room = 1e-5 * float(np.abs(rows).max()) + least
    assert np.isfinite(result).all()
    assert abs(result.sum() - mean.sum()) <= room * len(mean)
    assert np.linalg.norm(result) >= np.linalg.norm(mean) - room * len(mean)
    assert np.linalg.norm(result) <= np.sqrt(weights @ norms(rows) ** 2) + room * len(mean)


@given(updates(), st.randoms(use_true_random=False))
def test_order_of_clients_and_of_entries_does_not_matter(
    case: tuple[Matrix, Doubles], random: Random
) -> None:
    """Whole numbers and equal weights, so that every sum is exact in any order."""
    rows = np.round(case[0] / (float(np.abs(case[0]).max()) or 1.0) * 8).astype(np.float32)
    clients, entries = (random.sample(range(n), n) for n in rows.shape)
    ones = np.ones(len(rows))
    plain = barycentre(rows, ones)
    assert np.array_equal(barycentre(rows[clients], ones), plain)
    assert np.array_equal(barycentre(rows[:, entries], ones), plain[entries])


@given(updates())
def test_clients_of_one_mind_and_a_client_alone_are_averaged(
    case: tuple[Matrix, Doubles],
) -> None:
    rows, weights = case
    np.testing.assert_allclose(barycentre(rows[:1], np.ones(1)), rows[0], rtol=1e-6)
    agreeing = np.sort(rows, axis=1)
    mean = weights @ agreeing.astype(np.float64)
    room = 1e-5 * float(np.abs(rows).max())
    np.testing.assert_allclose(barycentre(agreeing, weights), mean, rtol=1e-5, atol=room)


SHAPES = {"body.weight": (2,), "fc.weight": (2, 1), "fc.bias": (2,)}


def test_the_last_layer_is_the_last_module_with_weights() -> None:
    assert last_layer(SHAPES) == {"fc.weight": slice(2, 4), "fc.bias": slice(4, 6)}


@pytest.mark.parametrize(
    ("on", "expected"), [(True, [1, 3, 0, 4, 8, 0]), (False, [1, 3, 1, 3, 6, 2])]
)
def test_a_round_by_hand(on: bool, expected: list[float]) -> None:
    """One and three rows: weights 1/4 and 3/4, server-lr 1/2, w = 0, so half of each move.

    Body (8, 0) and (0, 8): mean (2, 6). Weight the same values, so (0, 8) by the means' order.
    Bias (0, 16) and (16, 0): mean (12, 4), barycentre (16, 0). Weight and bias never mix.
    """
    info = RunInfo(2, {0: 1, 1: 3}, seed=0, server_lr=0.5, shapes=SHAPES)
    updates = np.array([[8, 0, 8, 0, 0, 16], [0, 8, 0, 8, 16, 0]], np.float32)
    this_round = Round(
        number=1,
        model=np.zeros(6, np.float32),
        clients=[0, 1],
        arrays={"update": updates},
        buffers=np.zeros((2, 0), np.float32),
        num_examples=np.array([1.0, 3.0]),
        num_steps=np.ones(2),
        lr=0.1,
    )
    model = FedDual(info, FedDualParams(barycentre=on)).aggregate(this_round)
    assert np.array_equal(model, expected)


def saved(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_both_terms_off_is_fedavg_bit_for_bit(experiment: Experiment) -> None:
    ours, plain = experiment("feddual", local_epochs=2, **OFF), experiment("fedavg", local_epochs=2)
    model = "model.safetensors"
    assert (ours / model).read_bytes() == (plain / model).read_bytes()


@pytest.mark.parametrize("term", ["adaptive_loss", "barycentre"])
def test_each_term_alone_differs_from_fedavg(experiment: Experiment, term: str) -> None:
    ours = saved(experiment("feddual", **(OFF | {f"feddual.{term}": True})))
    plain = saved(experiment("fedavg"))
    assert not np.array_equal(ours["fc.weight"], plain["fc.weight"])


def test_the_barycentre_leaves_the_body_to_the_mean(experiment: Experiment) -> None:
    """After one round without the adaptive loss only the last layer differs from FedAvg's."""
    ours = saved(experiment("feddual", num_rounds=1, **{"feddual.adaptive_loss": False}))
    plain = saved(experiment("fedavg", num_rounds=1))
    different = {name for name in plain if not np.array_equal(ours[name], plain[name])}
    assert different == {"fc.weight", "fc.bias"}


def test_differs_from_fedavg_and_records_what_it_saw(experiment: Experiment) -> None:
    """The divergence is positive in every round, also in the first, once a step was taken."""
    folder = experiment("feddual", local_epochs=2)
    model = "model.safetensors"
    plain = experiment("fedavg", local_epochs=2)
    assert (folder / model).read_bytes() != (plain / model).read_bytes()
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    assert len(rows) == 8 and all(row["divergence"] > 1e-6 for row in rows)
    assert all(0.26 < row["share"] < 0.74 for row in rows)
    assert any(row["share"] != 0.5 for row in rows)


@pytest.mark.usefixtures("small_resnet")
def test_a_batch_norm_model_trains(experiment: Experiment) -> None:
    few = {"num_clients": 40, "fraction_train": 0.05, "num_rounds": 1, "eval_rows": 8}
    folder = experiment("feddual", model="resnet18", **few)
    assert read_document(folder / "summary.json")["failed_replies"] == 0
    tensors = saved(folder)
    assert np.abs(tensors["bn1.running_mean"]).sum() > 0
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())
