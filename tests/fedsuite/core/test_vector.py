"""Sums, means and parts of vectors by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsuite.core.vector import (
    BLOCK,
    cosines,
    last_layer,
    layers,
    mean_row,
    norms,
    sample_weights,
    slices,
    top_layers,
    weighted_sum,
)


def test_weighted_sum_by_hand() -> None:
    """1/4 * (1, 2) + 3/4 * (5, 6) = (4, 5)."""
    rows = np.array([[1, 2], [5, 6]], dtype=np.float32)
    assert np.array_equal(weighted_sum(np.array([0.25, 0.75]), rows), [4.0, 5.0])
    assert np.array_equal(sample_weights(np.array([1, 3])), [0.25, 0.75])


def test_sums_of_updates_are_float32_and_what_decides_is_float64() -> None:
    rows = np.array([[3, 4], [0, 0]], dtype=np.float32)
    assert weighted_sum(np.array([0.5, 0.5]), rows).dtype == np.float32
    decides = (norms(rows), cosines(rows, rows[0]), mean_row(rows), sample_weights(rows[0]))
    assert {numbers.dtype for numbers in decides} == {np.dtype(np.float64)}
    assert norms(rows).tolist() == [5, 0] and mean_row(rows).tolist() == [1.5, 2]
    assert cosines(rows, np.array([1, 0], np.float32)).tolist() == [3 / 5, 0]


def test_a_thousand_small_numbers_are_not_lost_beside_a_large_one() -> None:
    """In float32, 2^24 + 1 is 2^24."""
    row = np.ones((1, 1001), np.float32)
    row[0, 0] = 2.0**12
    assert norms(row)[0] == math.sqrt(2**24 + 1000)


def test_the_last_layers_parts_by_hand() -> None:
    shapes = {"body.weight": (2, 3), "fc.weight": (2, 2), "fc.bias": (2,)}
    assert last_layer(shapes) == {"fc.weight": slice(6, 10), "fc.bias": slice(10, 12)}


def test_layers_by_hand() -> None:
    """A stem's norm of 2 + 2 belongs to the convolution of 6 before it; the head has 4 + 2."""
    shapes = {"conv.weight": (2, 3), "norm.weight": (2,), "norm.bias": (2,)}
    shapes |= {"fc.weight": (2, 2), "fc.bias": (2,)}
    assert layers(shapes) == {"conv": slice(0, 10), "fc": slice(10, 16)}
    assert top_layers(shapes, 1) == {"fc": slice(10, 16)}
    assert top_layers(shapes, 0) == top_layers(shapes, 2) == top_layers(shapes, 9) == layers(shapes)
    first = {"scale.weight": (5,)} | shapes
    assert top_layers(first, 0) == {"conv": slice(0, 15), "fc": slice(15, 21)}
    assert top_layers({}, 2) == {}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_model_of_vectors_alone_is_one_layer(count: int) -> None:
    shapes = {"norm.weight": (3,), "norm.bias": (3,), "scale": (1,)}
    assert top_layers(shapes, count) == {"model": slice(0, 7)}


def test_cosines_by_hand_and_within_one() -> None:
    """(3,4)·(4,3) / 25 = 0.96; opposite is -1; nothing against something, and the reverse, is 0."""
    rows = np.array([[3, 4], [-8, -6], [0, 0]], np.float32)
    assert cosines(rows, np.array([4, 3], np.float32)).tolist() == [24 / 25, -1, 0]
    assert cosines(rows, np.zeros(2, np.float32)).tolist() == [0, 0, 0]
    many = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    assert max(abs(cosines(many, row)).max() for row in many) <= 1.0


def test_the_mean_of_rows_is_plain_and_summed_in_float64() -> None:
    """In float32, 2^24 + 1 is 2^24, and the mean of the second column would be 2^23."""
    rows = np.array([[2, 2**24], [4, 1]], np.float32)
    assert mean_row(rows).tolist() == [3, (2**24 + 1) / 2]


def test_a_mean_in_blocks_is_the_same_bits() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 2 * BLOCK + 1)).astype(np.float32)
    assert np.array_equal(mean_row(rows), rows.mean(axis=0, dtype=np.float64))


def test_parts_lie_end_to_end() -> None:
    assert slices({"a": 2, "b": 0, "c": 3}) == {
        "a": slice(0, 2),
        "b": slice(2, 2),
        "c": slice(2, 5),
    }
    assert slices({}) == {}


def test_the_last_layer_is_that_of_the_last_parameter_alone() -> None:
    """5x4 + 5 = 25 numbers come first; "head.0" is not part of "head.1"."""
    shapes = {"head.0.weight": (5, 4), "head.0.bias": (5,), "head.1.weight": (3, 5)}
    assert last_layer(shapes) == {"head.1.weight": slice(25, 40)}
