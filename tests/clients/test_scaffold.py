"""SCAFFOLD's client by hand, on a bowl with its bottom at (1, 3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bowl import fit, place

from clients.base import Training
from clients.fedavg import FedAvgClient
from clients.freeloader import freeloading
from clients.scaffold import ScaffoldClient, next_control
from fedsuite.core.compression import Compression
from strategies.scaffold import ScaffoldParams

TWO_STEPS = Training(local_steps=2, batch_size=1)
PRINTED = ScaffoldParams(control="update")
EXACT = ScaffoldParams(control="gradient")


def test_the_next_control_by_hand() -> None:
    """c_i = (1, 1), c = (2, 0), update (-4, 8) in 2 steps of 1/2: (1, 1) - (2, 0) + (4, -8)."""
    own, control, update = (np.array(v, np.float32) for v in ([1, 1], [2, 0], [-4, 8]))
    assert np.array_equal(next_control(own, control, update, steps=2, lr=0.5), [3, -7])


def test_the_first_control_is_zero_not_the_weights(tmp_path: Path) -> None:
    """From (4, 4) with c = 0 the steps are plain: three quarters of the way to (1, 3)."""
    context = place(tmp_path, TWO_STEPS)
    (update,), _, _ = fit(ScaffoldClient, context, [4, 4], [0, 0], params=PRINTED, counted=0)
    assert np.array_equal(update, [-2.25, -0.75])
    state = context.state.load(after_round=True)
    assert np.array_equal(state["before"], [0, 0])
    assert np.array_equal(state["control"], [2.25, 0.75])


def test_the_control_follows_from_the_update_that_the_server_sees(tmp_path: Path) -> None:
    """Of the update (-9/4, -3/4) top-k keeps the first number; K lr = 1."""
    training = replace(TWO_STEPS, compression=Compression("top-k", 0.5))
    context = place(tmp_path, training)
    (update,), _, _ = fit(ScaffoldClient, context, [4, 4], [0, 0], params=PRINTED, counted=0)
    assert np.array_equal(update, [-2.25, 0])
    assert np.array_equal(context.state.load(after_round=True)["control"], [2.25, 0])


@pytest.mark.parametrize("coefficient", [1.0, 0.5])
def test_what_is_left_in_the_control_by_hand(tmp_path: Path, coefficient: float) -> None:
    """With c = (1, 0), c_i = 0, from the origin: pull (a, 0), update 3/4 ((1, 3) - (a, 0)).

    The mean gradient is -update - pull; option II gives -update - c, which is the same for a = 1
    and lacks (1 - a) c otherwise.
    """
    a = coefficient
    printed, exact = (replace(form, coefficient=a) for form in (PRINTED, EXACT))
    update = np.array([0.75 * (1 - a), 2.25])
    context = place(tmp_path / "printed", TWO_STEPS)
    (sent,), _, _ = fit(ScaffoldClient, context, [0, 0], [1, 0], params=printed, counted=0)
    assert np.array_equal(sent, update)
    assert np.array_equal(context.state.load(after_round=True)["control"], -update - [1, 0])
    context = place(tmp_path / "exact", TWO_STEPS)
    (sent, change), _, _ = fit(ScaffoldClient, context, [0, 0], [1, 0], params=exact, counted=0)
    assert np.array_equal(sent, update)
    assert np.array_equal(change, -update - [a, 0])


def test_the_mean_gradient_does_not_depend_on_the_optimiser(tmp_path: Path) -> None:
    """Gradients (-1, -3) and, after one step of 1/2, (-1/2, -3/2): mean (-3/4, -9/4)."""
    training = Training(local_steps=2, batch_size=1, momentum=0.9)
    context = place(tmp_path, training)
    (update, change), _, _ = fit(ScaffoldClient, context, [0, 0], [0, 0], params=EXACT, counted=0)
    assert np.allclose(change, [-0.75, -2.25]) and not np.allclose(update, -change)


def test_a_round_that_did_not_count_is_forgotten(tmp_path: Path) -> None:
    """The server counted round 1 and never saw round 2: round 3 starts from round 1's c_i."""
    for number, counted in ((1, 0), (2, 1), (3, 1), (4, 1), (5, 4)):
        context = place(tmp_path, TWO_STEPS, number)
        fit(ScaffoldClient, context, [number, 0], [0, 0], params=PRINTED, counted=counted)
    read = {n: place(tmp_path, TWO_STEPS, n).state.load(after_round=True) for n in range(1, 6)}
    first = read[1]["control"]
    for number in (2, 3, 4):
        assert np.array_equal(read[number]["before"], first)
    assert np.array_equal(read[5]["before"], read[4]["control"])


def test_without_a_coefficient_it_is_plain_training(tmp_path: Path) -> None:
    context, off = place(tmp_path, TWO_STEPS), replace(PRINTED, coefficient=0.0)
    (update,), _, _ = fit(ScaffoldClient, context, [0, 0], [4, 5], params=off, counted=0)
    (plain,), _, _ = fit(FedAvgClient, place(tmp_path, TWO_STEPS), [0, 0])
    assert update.tobytes() == plain.tobytes()


@pytest.mark.parametrize(("control", "count"), [("update", 1), ("gradient", 2)])
def test_a_freeloader_sends_as_many_vectors(tmp_path: Path, control: str, count: int) -> None:
    context, params = place(tmp_path, TWO_STEPS), ScaffoldParams(control=control)
    cls = freeloading(ScaffoldClient)
    vectors, _, _ = fit(cls, context, [0, 0], [0, 0], params=params, counted=0)
    assert [vector.tolist() for vector in vectors] == [[0, 0]] * count
