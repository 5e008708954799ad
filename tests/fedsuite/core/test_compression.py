"""What vectors lose on their way and how many bytes they take, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsuite.core.compression import Compression
from fedsuite.core.protocol import INT8, NONE, TOP_K

EIGHT, HALF = Compression(INT8), Compression(TOP_K, 0.5)
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_int8_rounds_to_127ths_of_the_largest_half_to_even() -> None:
    """With m = 254 a level is 2: 3 / 2 = 1.5 and 5 / 2 = 2.5 both round to 2."""
    given = vector(-254.0, 3.0, 5.0, 0.9, 100.0)
    assert EIGHT.as_sent(given).tolist() == [-254.0, 4.0, 4.0, 0.0, 100.0]
    data = EIGHT.compress(given)
    assert np.frombuffer(data[:4], "<f4").tolist() == [254.0]
    assert np.frombuffer(data[4:], np.int8).tolist() == [-127, 2, 2, 0, 50]


def test_top_k_keeps_the_largest_and_of_equal_ones_the_first() -> None:
    """Half of five numbers is three: -9, then the first two of the three whose size is 2."""
    given = vector(1.0, -2.0, -9.0, 2.0, 2.0)
    assert HALF.as_sent(given).tolist() == [0.0, -2.0, -9.0, 2.0, 0.0]
    data = HALF.compress(given)
    assert np.frombuffer(data[:12], "<u4").tolist() == [1, 2, 3]
    assert np.frombuffer(data[12:], "<f4").tolist() == [-2.0, -9.0, 2.0]


@pytest.mark.parametrize(
    ("how", "size", "expected"),
    [
        (Compression(NONE), 1000, 4000),
        (EIGHT, 1000, 1004),
        (Compression(TOP_K, 0.01), 1000, 80),
        (Compression(TOP_K, 0.0101), 1000, 88),
        (Compression(TOP_K, 1.0), 3, 24),
        (Compression(TOP_K, 0.01), 1, 8),
    ],
)
def test_bytes(how: Compression, size: int, expected: int) -> None:
    assert how.nbytes(size) == expected == len(how.compress(np.ones(size, np.float32)))


def test_none_and_what_is_not_finite_stay_as_they_are() -> None:
    given = vector(1.0, 1e-30)
    assert Compression().as_sent(given) is given
    for broken in (vector(1.0, np.nan), vector(np.inf, 0.0)):
        assert EIGHT.as_sent(broken) is broken and HALF.as_sent(broken) is broken


@given(
    arrays(np.float32, st.integers(1, 40), elements=FLOATS),
    st.sampled_from([EIGHT, HALF, Compression(TOP_K, 0.1)]),
)
def test_what_the_server_sees_compresses_to_itself(given: np.ndarray, how: Compression) -> None:
    seen = how.as_sent(given)
    assert how.restore(how.compress(seen), seen.size).tobytes() == seen.tobytes()
    error = np.abs(seen.astype(np.float64) - given).max()
    half_level = np.abs(given).max(initial=0) / 254
    assert how.kind != INT8 or error <= half_level * (1 + 1e-6)


@pytest.mark.parametrize("how", [EIGHT, HALF])
def test_zeros_stay_zeros(how: Compression) -> None:
    assert how.as_sent(vector(0.0, -0.0, 0.0)).tobytes() == bytes(12)


@pytest.mark.parametrize(
    ("how", "data", "size"),
    [
        (EIGHT, bytes(8), 5),
        (HALF, bytes(7), 3),
        (HALF, np.array([9, 0], "<u4").tobytes() + bytes(8), 4),
        (Compression(), bytes(5), 1),
    ],
)
def test_bytes_that_are_no_such_vector_are_refused(
    how: Compression, data: bytes, size: int
) -> None:
    with pytest.raises(ValueError, match="numbers"):
        how.restore(data, size)
