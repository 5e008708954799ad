"""FedTGP's server by hand: margins, the contrastive loss, the network, rounds, absent classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsuite.core.files import read_document, read_lines
from fedsuite.records.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from strategies.base import Round, RunInfo
from strategies.fedtgp import (
    FedTgp,
    FedTgpParams,
    adaptive_margin,
    contrast,
    cut,
    descend,
    distances,
    generate,
    initial_network,
    shapes_of,
)
from strategies.prototypes import class_means

Experiment = Callable[..., Path]


def server(classes: int, width: int, **params: Any) -> FedTgp:
    shapes = {"body.weight": (3,), "fc.weight": (classes, width), "fc.bias": (classes,)}
    info = RunInfo(num_clients=3, client_sizes={0: 1, 1: 1, 2: 1}, seed=0, shapes=shapes)
    return FedTgp(info, FedTgpParams(**params))


def send(prototypes: list[Any], counts: list[Any], number: int = 1) -> Round:
    """A round in which each client sent one list of class features and one of counts."""
    clients = len(counts)
    return Round(
        number=number,
        model=np.zeros(7, np.float32),
        clients=list(range(clients)),
        arrays={
            "prototypes": np.array(prototypes, np.float32).reshape(clients, -1),
            "counts": np.array(counts, np.float32),
        },
        buffers=np.zeros((clients, 0), np.float32),
        num_examples=np.ones(clients),
        num_steps=np.ones(clients),
        lr=0.1,
    )


def test_distances_by_hand() -> None:
    points, centres = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [3.0, 0.0]])
    assert np.array_equal(distances(points, centres), [[5, 3], [0, 4]])


def test_a_class_is_averaged_over_those_who_have_it() -> None:
    """Class 0: only client 0, so 6, not 6/2. Class 1: (1 + 3)/2. Class 2: nobody.

    What stands in the rows of absent classes (here -99) is never looked at.
    """
    sent = np.array([[[6.0], [1.0], [-99.0]], [[-99.0], [3.0], [-99.0]]])
    held = np.array([[True, True, False], [False, True, False]])
    means, shown = class_means(sent, held)
    assert np.array_equal(means, [[6], [2], [0]])
    assert shown.tolist() == [True, True, False]


def test_margins_by_hand() -> None:
    """Classes at 0, 1 and 10: the farthest pair is 10 apart; the nearest of 10 is 1, 9 away."""
    means = np.array([[0.0], [1.0], [10.0]])
    assert adaptive_margin(means, "pairs", 100) == 10
    assert adaptive_margin(means, "nearest", 100) == 9
    assert adaptive_margin(means, "pairs", 5) == 5
    assert adaptive_margin(means[:1], "pairs", 5) == adaptive_margin(means[:0], "nearest", 5) == 0


def test_the_contrastive_loss_by_hand() -> None:
    """A point at 0 of class 0, prototypes at 3 and -4, margin 1: both score -4, a half each.

    The loss is log 2. Class 0 is pulled: 1/2 along (3 - 0)/3 = 1. Class 1 is pushed: -1/2 along
    -1. A step against the gradient (1/2, 1/2) brings 3 nearer and sends -4 away. The third
    prototype lies on the point, but nobody has shown its class: it takes no part.
    """
    prototypes, known = np.array([[3.0], [-4.0], [0.0]]), np.array([True, True, False])
    loss, slope = contrast(np.zeros((1, 1)), np.array([0]), prototypes, known, 1.0)
    assert loss == pytest.approx(math.log(2))
    np.testing.assert_allclose(slope, [[0.5], [0.5], [0.0]], atol=1e-12)


def test_a_point_on_its_prototype_has_no_direction() -> None:
    loss, slope = contrast(np.ones((1, 1)), np.array([0]), np.ones((2, 1)), np.ones(2, bool), 0.0)
    assert loss == pytest.approx(math.log(2)) and not slope.any()


def test_the_network_and_its_step_by_hand() -> None:
    """E = 2, A = 1, a = 0, B = 3, b = 1: hidden 2, prototype 7.

    With a slope of 1 the hidden layer's is 3, so E gets 3 * 1, A 2 * 3, a 3, B 2, b 1; lr 0.1.
    """
    layers = [np.array([[2.0]]), np.array([[1.0]]), np.zeros(1), np.array([[3.0]]), np.ones(1)]
    hidden, prototypes = generate(layers)
    assert (hidden.item(), prototypes.item()) == (2, 7)
    descend(layers, hidden, np.ones((1, 1)), 0.1)
    np.testing.assert_allclose([v.item() for v in layers], [1.7, 0.4, -0.3, 2.8, 0.9])


def test_the_gradient_agrees_with_autograd() -> None:
    draw = np.random.default_rng(0)
    shapes = shapes_of(classes=4, width=3, hidden=5)
    network = initial_network(4, 3, 5, draw).astype(np.float64)
    points, labels = draw.standard_normal((6, 3)), np.array([0, 1, 2, 0, 1, 2])
    known = np.array([True, True, True, False])
    parts = [torch.tensor(part, requires_grad=True) for part in cut(network.copy(), shapes)]
    made = torch.relu(parts[0] @ parts[1] + parts[2]) @ parts[3] + parts[4]
    apart = torch.cdist(torch.tensor(points), made)
    scores = (-apart - 0.7 * torch.eye(4)[labels])[:, torch.tensor(known)]
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor(labels))
    expected.backward()
    layers = cut(network, shapes)
    hidden, prototypes = generate(layers)
    loss, slope = contrast(points, labels, prototypes, known, 0.7)
    before = [layer.copy() for layer in layers]
    descend(layers, hidden, slope, 1.0)
    assert loss == pytest.approx(expected.item())
    for part, old, new in zip(parts, before, layers, strict=True):
        assert part.grad is not None
        np.testing.assert_allclose(old - new, part.grad.numpy(), atol=1e-12)


def test_a_round_by_hand() -> None:
    """Two classes already known, prototypes 3 and 1 (E = (3, 1), A = B = 1, a = b = 0).

    Clients 0 and 1 send class 0 at 2, client 2 nothing. One class: no margin. Distances 1 and 1:
    a half each, so the slope is (1/2, 1/2). Then E gets (1/2, 1/2), A 3/2 + 1/2, a 1, B 2, b 1.
    With lr 0.1: E = (2.95, 0.95), A = B = 0.8, a = b = -0.1: hidden 2.26 and 0.66, prototypes
    1.708 and 0.428: the first came nearer to 2, the second went away.
    """
    strategy = server(2, 1, prototype_epochs=1, prototype_lr=0.1)
    network = np.array([3, 1, 1, 0, 1, 0], np.float32)
    strategy.load_state({"expelled": [], "network": network, "known": np.ones(2, np.float32)})
    this_round = send([[2, 0], [2, 0], [0, 0]], [[5, 0], [1, 0], [0, 0]])
    assert strategy.aggregate(this_round) is this_round.model
    sent = strategy.broadcast()
    np.testing.assert_allclose(sent["prototypes"], [[1.708], [0.428]], rtol=1e-6)
    assert this_round.scalars == {
        "margin": 0.0,
        "prototype_loss": pytest.approx(math.log(2)),
        "known_classes": 2,
    }
    assert this_round.per_client["classes"].tolist() == [1, 1, 0]


def test_prototypes_move_to_their_classes() -> None:
    """After one round each class's own prototype is the nearest to what was sent for it."""
    strategy = server(3, 2, hidden=32)
    before = strategy.network.copy()
    points = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])
    this_round = send([points, points + 0.1], [[1, 1, 1], [1, 1, 1]])
    strategy.aggregate(this_round)
    first = strategy.broadcast()["prototypes"].astype(np.float64)
    assert distances(points, first).argmin(axis=1).tolist() == [0, 1, 2]
    assert not np.array_equal(strategy.network, before)
    strategy.aggregate(send([points, points + 0.1], [[1, 1, 1], [1, 1, 1]], 2))
    second = strategy.broadcast()["prototypes"].astype(np.float64)
    near, nearer = (np.diag(distances(points, made)).sum() for made in (first, second))
    assert nearer < near


def test_classes_nobody_has_and_classes_that_stay_away() -> None:
    """Class 2 is never shown: unknown, zeros on the wire. Class 1 is shown once and stays known."""
    strategy = server(3, 2)
    assert not strategy.broadcast()["known"].any() and not strategy.broadcast()["prototypes"].any()
    strategy.aggregate(send([[[1, 0], [0, 1], [0, 0]]], [[1, 1, 0]]))
    strategy.aggregate(send([[[1, 0], [0, 0], [0, 0]]], [[1, 0, 0]], 2))
    sent = strategy.broadcast()
    assert sent["known"].tolist() == [1, 1, 0]
    assert sent["prototypes"][:2].any(axis=1).all() and not sent["prototypes"][2].any()
    assert np.isfinite(sent["prototypes"]).all()


def test_an_absent_class_is_not_a_class_at_zero() -> None:
    """Rows that stand for no samples change nothing, whatever is in them."""
    made = []
    for filler in (0.0, 7.0, 1e18):
        strategy = server(3, 1)
        strategy.aggregate(send([[1, 5, filler], [2, filler, filler]], [[1, 1, 0], [1, 0, 0]]))
        made.append(strategy.broadcast()["prototypes"].tobytes())
    assert made[0] == made[1] == made[2]


def test_a_round_of_freeloaders_changes_nothing() -> None:
    strategy = server(2, 2)
    before = strategy.network.tobytes()
    strategy.aggregate(send([np.zeros((2, 2))], [[0, 0]]))
    assert strategy.network.tobytes() == before and not strategy.known.any()


def test_what_is_trained_survives_a_checkpoint_to_the_bit(tmp_path: Path) -> None:
    rounds = [send([np.eye(2) * number], [[1, 1]], number) for number in (1, 2)]
    whole, cut_short, resumed = server(2, 2), server(2, 2), server(2, 2)
    for this_round in rounds:
        whole.aggregate(this_round)
    cut_short.aggregate(rounds[0])
    empty = np.zeros(0, np.float32)
    save_checkpoint(tmp_path, Checkpoint(1, empty, empty, cut_short.state()))
    saved = load_checkpoint(tmp_path)
    assert saved is not None
    resumed.load_state(saved.strategy)
    resumed.aggregate(rounds[1])
    assert resumed.network.tobytes() == whole.network.tobytes()
    assert resumed.network.tobytes() != cut_short.network.tobytes()


@given(st.data(), st.sampled_from([0.0, 1e-18, 1.0, 1e18]), st.sampled_from(["pairs", "nearest"]))
def test_finite_in_finite_out(data: st.DataObject, scale: float, rule: str) -> None:
    """Two clients, two classes, any size, some absent; and clients in any order count the same."""
    numbers = st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8)
    sent = (np.array(data.draw(numbers)) * scale).reshape(2, 2, 2).astype(np.float32)
    held = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4))).reshape(2, 2)
    means, shown = class_means(sent, held)
    swapped, _ = class_means(sent[::-1], held[::-1])
    np.testing.assert_allclose(swapped, means, rtol=1e-12)
    margin = adaptive_margin(means[shown], rule, 100)
    assert np.isfinite(means).all() and 0 <= margin <= 100
    strategy = server(2, 2, margin=rule, prototype_epochs=3)
    strategy.aggregate(send([*sent], held.astype(float).tolist()))
    assert np.isfinite(strategy.network).all()
    assert np.isfinite(strategy.broadcast()["prototypes"]).all()


def test_only_prototypes_travel(experiment: Experiment) -> None:
    """Digits with the perceptron: 10 classes of 8 features and 10 numbers beside them."""
    folder = experiment("fedtgp")
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    assert {row["upload_bytes"] for row in rows} == {4 * (10 * 8 + 10)}
    assert all(1 <= row["classes"] <= 10 for row in rows)
    last = read_lines(folder / "history.jsonl")[-1]
    assert last["download_bytes"] == 4 * 4 * (10 * 8 + 10)
    assert last["known_classes"] == 10 and last["margin"] > 0 and last["prototype_loss"] > 0
    summary = read_document(folder / "summary.json")
    assert summary["personal_accuracy"] is not None and summary["final_accuracy"] is None


def test_two_classes_are_enough_for_a_margin() -> None:
    means = np.array([[0.0], [4.0]])
    assert adaptive_margin(means, "pairs", 100) == adaptive_margin(means, "nearest", 100) == 4


@pytest.mark.parametrize(("hidden", "width"), [(0, 3), (5, 5)])
def test_the_hidden_layer_is_as_wide_as_the_features_unless_said_otherwise(
    hidden: int, width: int
) -> None:
    """Vectors 2 * 3, then 3 to the width and back, with offsets."""
    strategy = server(2, 3, hidden=hidden)
    assert strategy.network.size == 6 + (3 + 1) * width + (width + 1) * 3


def test_the_first_network_is_within_its_bounds() -> None:
    """64 numbers per class from N(0, 1); then within 1/8 of 0 for 64 inputs, 1/4 for 16."""
    network = initial_network(50, 64, 16, np.random.default_rng(0))
    vectors, *rest = cut(network.astype(np.float64), shapes_of(50, 64, 16))
    assert abs(vectors.mean()) < 0.1 and vectors.std() == pytest.approx(1, abs=0.05)
    for part, bound in zip(rest, (1 / 8, 1 / 8, 1 / 4, 1 / 4), strict=True):
        assert -bound <= part.min() < -0.7 * bound and 0.7 * bound < part.max() <= bound


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_the_loss_is_a_mean_over_points_however_they_are_batched(batch: int) -> None:
    """Prototypes 3 and 1, which a rate of 1e-12 leaves. Points of class 0 at 2 and 3, of class 1
    at 2; classes are 1/2 apart on average, the margin: distances 1, 1; 0, 2; 1, 1.

    With the margin the losses are log(1 + e^d) with d = 1/2 + own - other: 1/2, -3/2 and 1/2.
    """
    params = {"prototype_epochs": 2, "prototype_lr": 1e-12, "prototype_batch": batch}
    strategy = server(2, 1, **params)
    network = np.array([3, 1, 1, 0, 1, 0], np.float32)
    strategy.load_state({"expelled": [], "network": network, "known": np.ones(2, np.float32)})
    this_round = send([[2, 2], [3, 0]], [[1, 1], [1, 0]])
    strategy.aggregate(this_round)
    losses = [math.log1p(math.exp(d)) for d in (0.5, -1.5, 0.5)]
    assert this_round.scalars["margin"] == 0.5
    assert this_round.scalars["prototype_loss"] == pytest.approx(sum(losses) / 3)


def test_a_class_alone_has_nothing_to_keep_away_from() -> None:
    """One class at 2, prototype 3 with E = 3, A = B = 1, a = b = 0: of a class alone the loss is 0
    whatever the distance, so nothing moves.
    """
    strategy = server(1, 1, prototype_epochs=3, prototype_batch=1)
    network = np.array([3, 1, 0, 1, 0], np.float32)
    strategy.load_state({"expelled": [], "network": network, "known": np.ones(1, np.float32)})
    this_round = send([[2], [2]], [[1], [1]])
    strategy.aggregate(this_round)
    assert this_round.scalars["prototype_loss"] == 0
    assert strategy.network.tolist() == network.tolist()


def test_means_of_classes_are_summed_in_float64() -> None:
    """In float32, 2^24 + 1 is 2^24."""
    sent = np.array([[[2.0**24]], [[1.0]]], np.float32)
    means, _ = class_means(sent, np.ones((2, 1), dtype=bool))
    assert means.tolist() == [[(2**24 + 1) / 2]]
