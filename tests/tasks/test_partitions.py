"""Partitions: properties that hold for any data, and small cases worked by hand."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import TEN_CLASSES, divide

from fedsuite.core.settings import UserError
from tasks import schemes
from tasks.partitions import PARTITIONS, PartitionOptions
from tasks.schemes import MIN_CLIENT_SAMPLES
from tasks.split import fingerprint, label_counts, partition

SCHEMES = ["iid", "dirichlet", "shards", "pathological", "groups", "natural", "sizes"]


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Small data sets, some of which cannot be divided."""
    rows = draw(st.integers(1, 60))
    classes = draw(st.integers(1, 7))
    noise = np.random.default_rng(draw(st.integers(0, 2**20)))
    return {
        "labels": noise.integers(0, classes, rows),
        "owners": noise.integers(0, 9, rows),
        "num_clients": draw(st.integers(1, 12)),
        "seed": draw(st.integers(0, 2**31)),
        "options": PartitionOptions(
            dirichlet_alpha=draw(st.sampled_from([1e-3, 0.1, 0.5, 100.0])),
            num_shards=draw(st.sampled_from([0, 0, 7, 30])),
            shards_per_client=draw(st.integers(1, 3)),
            classes_per_client=draw(st.integers(1, 4)),
            natural_rows=draw(st.sampled_from([0, 0, 9, 30])),
            size_ratio=draw(st.sampled_from([1.0, 3.0, 1e6])),
        ),
    }


def promised(scheme: str, problem: dict[str, Any]) -> bool:
    """Whether every row must be somebody's."""
    clients, options = problem["num_clients"], problem["options"]
    classes = len(np.unique(problem["labels"]))
    if scheme == "shards":
        return options.num_shards in (0, clients * options.shards_per_client)
    if scheme == "pathological":
        return clients * options.classes_per_client >= classes
    if scheme == "groups":
        percents = (10, 20, 50)
        slots = [max(1, int(percents[c % 3] * classes / 100 + 0.5)) for c in range(clients)]
        return sum(slots) >= classes
    if scheme == "natural":
        return not options.natural_rows and clients == len(np.unique(problem["owners"]))
    return True


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_parts_are_disjoint_complete_and_never_empty(scheme: str, problem: dict[str, Any]) -> None:
    try:
        parts = partition(scheme, **problem)
    except UserError as error:
        named = ("partition '", "num-", "-per-client", "natural-rows")
        assert any(word in str(error) for word in named)
        assert str(error).endswith(".")
        with pytest.raises(UserError):
            partition(scheme, **problem)
        return
    rows = np.concatenate(parts)
    assert len(parts) == problem["num_clients"]
    assert all(part.dtype == np.int64 and len(part) >= 1 for part in parts)
    assert all((np.diff(part) > 0).all() for part in parts)
    assert len(set(rows.tolist())) == len(rows)
    assert rows.min() >= 0 and rows.max() < len(problem["labels"])
    if promised(scheme, problem):
        assert len(rows) == len(problem["labels"])
    again = partition(scheme, **problem)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_dirichlet_gives_everybody_enough_to_hold_one_out(problem: dict[str, Any]) -> None:
    try:
        parts = partition("dirichlet", **problem)
    except UserError:
        return
    assert min(len(part) for part in parts) >= MIN_CLIENT_SAMPLES


@settings(max_examples=25, deadline=None)
@given(problem=problems(), scheme=st.sampled_from(["pathological", "groups"]))
def test_all_rows_of_a_held_class_are_used(problem: dict[str, Any], scheme: str) -> None:
    try:
        parts = partition(scheme, **problem)
    except UserError:
        return
    labels = problem["labels"]
    used = np.concatenate(parts)
    for label in np.unique(labels[used]):
        assert np.isin(np.flatnonzero(labels == label), used).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_seed_is_another_split(scheme: str) -> None:
    owners = np.arange(600) % 30
    splits = {fingerprint(divide(scheme, TEN_CLASSES, 12, seed, owners)) for seed in range(5)}
    assert len(splits) == 5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_global_generators_are_neither_used_nor_moved(scheme: str) -> None:
    owners = np.arange(600) % 30
    np.random.seed(1)
    random.seed(1)
    first = divide(scheme, TEN_CLASSES, 12, 3, owners)
    _, numpy_keys, numpy_position, *_ = np.random.get_state(legacy=True)
    python_state = random.getstate()
    np.random.seed(1)
    random.seed(1)
    assert random.getstate() == python_state
    _, keys, position, *_ = np.random.get_state(legacy=True)
    assert np.array_equal(keys, numpy_keys)
    assert position == numpy_position
    np.random.seed(2)
    random.seed(2)
    assert fingerprint(divide(scheme, TEN_CLASSES, 12, 3, owners)) == fingerprint(first)


def test_label_counts_by_hand() -> None:
    counts = label_counts([np.array([0, 2]), np.array([1])], np.array([1, 0, 1]), 3)
    assert counts.tolist() == [[0, 2, 0], [1, 0, 0]]
    assert counts.dtype == np.int64


def test_fingerprint_names_the_split() -> None:
    parts = [np.array([0, 1]), np.array([2])]
    words = b"2:2:" + bytes(8) + bytes([1, *[0] * 7]) + b":1:" + bytes([2, *[0] * 7])
    assert fingerprint(parts) == hashlib.sha256(words).hexdigest()[:16]
    assert fingerprint([part.astype(np.int32) for part in parts]) == fingerprint(parts)
    assert fingerprint([np.array([0]), np.array([1, 2])]) != fingerprint(parts)


def test_every_scheme_has_a_summary() -> None:
    assert list(PARTITIONS) == SCHEMES
    assert all(entry.summary and "\n" not in entry.summary for entry in PARTITIONS.values())
    assert all(callable(getattr(schemes, name)) for name in PARTITIONS)


@pytest.mark.parametrize(
    ("scheme", "labels", "clients", "options", "words"),
    [
        ("dirichlt", TEN_CLASSES, 5, {}, ["'dirichlt'", "Did you mean 'dirichlet'?", "shards"]),
        ("iid", [0, 1, 0], 4, {}, ["'4' for num-clients", "3 samples", "at most 3"]),
        ("iid", [0], 0, {}, ["'0' for num-clients", "at least 1"]),
        (
            "dirichlet",
            TEN_CLASSES,
            100,
            {"dirichlet_alpha": 0.01},
            ["dirichlet-alpha = 0.01", "100 clients", "600 samples", "larger dirichlet-alpha"],
        ),
        ("shards", TEN_CLASSES, 20, {"num_shards": 39}, ["'39' for num-shards", "at least 40"]),
        ("shards", [0] * 9, 5, {}, ["9 samples into 10 shards", "smaller"]),
        (
            "pathological",
            TEN_CLASSES,
            5,
            {"classes_per_client": 11},
            ["'11' for classes-per-client", "10 classes", "at most 10"],
        ),
        (
            "pathological",
            [0, 1, 1, 1, 1, 1],
            6,
            {"classes_per_client": 1},
            ["classes-per-client = 1", "6 clients, 6 samples", "fewer clients"],
        ),
        ("natural", TEN_CLASSES, 5, {}, ["'natural'", "femnist or femnist-digits", "shakespeare"]),
        # One class each for A, B, C, A: two hold class 0, which has a single row.
        ("groups", [0] + [1] * 9, 4, {}, ["'groups' left client", "4 clients, 10 samples"]),
    ],
)
def test_errors_say_what_to_do(
    scheme: str,
    labels: Sequence[int] | np.ndarray,
    clients: int,
    options: dict[str, Any],
    words: list[str],
) -> None:
    with pytest.raises(UserError) as caught:
        divide(scheme, labels, clients, **options)
    assert str(caught.value).endswith(".")
    for word in words:
        assert word in str(caught.value)


def test_more_clients_than_owners() -> None:
    with pytest.raises(UserError, match=r"'4' for num-clients: .* 3 owners. Use at most 3"):
        divide("natural", [0] * 6, 4, owners=np.array([5, 9, 5, 7, 9, 9]))


@pytest.mark.parametrize("scheme", ["pathological", "groups"])
def test_schemes_that_assign_classes_name_those_without_rows(scheme: str) -> None:
    with pytest.raises(UserError, match=r"no samples of class 2, 5 \(of 6\)"):
        divide(scheme, [0, 1, 3, 4] * 20, 5, num_classes=6)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "shards", "sizes"])
def test_other_schemes_go_on_without_a_class(scheme: str) -> None:
    assert len(divide(scheme, [0, 1, 3, 4] * 20, 5, num_classes=6)) == 5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dirichlet_alpha", 0.0),
        ("dirichlet_alpha", float("nan")),
        ("num_shards", -1),
        ("shards_per_client", 0),
        ("classes_per_client", 0),
        ("natural_rows", -1),
        ("size_ratio", 0.5),
        ("size_ratio", float("inf")),
    ],
)
def test_impossible_options_are_refused(option: str, value: Any) -> None:
    with pytest.raises(UserError, match=option.replace("_", "-")):
        PartitionOptions(**{option: value})


def test_data_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="2 owners for 3 labels"):
        divide("natural", [0, 1, 2], 1, owners=np.array([0, 1]))
    with pytest.raises(ValueError, match="outside 2 classes"):
        divide("iid", [0, 1, 2], 1, num_classes=2)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            [[0, 1], [], [2]],
            "partition 'dirichlet' with dirichlet-alpha = 0.5 left client 1 without data",
        ),
        ([[0, 1], [1], [2]], "gave the same sample to two clients"),
    ],
)
def test_a_bad_split_is_never_returned(
    monkeypatch: pytest.MonkeyPatch, parts: list[list[int]], words: str
) -> None:
    bad = [np.array(part, dtype=np.int64) for part in parts]
    monkeypatch.setattr(schemes, "dirichlet", lambda request: bad)
    with pytest.raises(UserError, match=words):
        divide("dirichlet", [0, 1, 2], 3)


def test_repeated_draws_warn_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError):
            divide("dirichlet", TEN_CLASSES, 100, dirichlet_alpha=0.01)
        divide("shards", TEN_CLASSES, 5)
