"""Smaller uploads: what a client's vector loses on its way, and the bytes that it takes.

``int8``: the largest size ``m`` as a float32, then a byte per number, ``q = round(127 x / m)``,
half to even; the server sees ``q m / 127``. ``top-k``: the largest ``k = ceil(share n)`` numbers,
of equal ones the first, as their places (uint32) and values (float32); the server sees zeros
elsewhere.

What the server sees compresses to itself. So it does not matter whether a vector travels as bytes,
or is rounded where it is made and then shared by reference: the numbers are the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from fedsuite.core.protocol import INT8, NONE, TOP_K
from fedsuite.core.vector import Vector

LEVELS = 127
PLACE, VALUE = np.dtype("<u4"), np.dtype("<f4")


@dataclass(frozen=True)
class Compression:
    """How vectors are compressed; ``share`` is that of the numbers that top-k keeps."""

    kind: str = NONE
    share: float = 1.0

    def applies(self, size: int, model_size: int) -> bool:
        """Return whether a vector is compressed: one of the model's size or more."""
        return self.kind != NONE and size >= model_size

    def compress(self, vector: Vector) -> bytes:
        """Return a finite vector's bytes."""
        if self.kind == INT8:
            return _to_int8(vector)
        if self.kind == TOP_K:
            return _to_top(vector, self.count(vector.size))
        return vector.astype(VALUE).tobytes()

    def restore(self, data: bytes, size: int) -> Vector:
        """Return the vector of bytes, of any share; raise a ``ValueError`` if they are none."""
        pair = PLACE.itemsize + VALUE.itemsize
        fits = len(data) % pair == 0 if self.kind == TOP_K else len(data) == self.nbytes(size)
        if not fits:
            raise ValueError(f"{len(data)} bytes are not {size} numbers in the form {self.kind}")
        if self.kind == INT8:
            return _from_int8(data)
        if self.kind == TOP_K:
            return _from_top(data, size)
        return np.frombuffer(data, VALUE).astype(np.float32)

    def as_sent(self, vector: Vector) -> Vector:
        """Return a vector as the server sees it; one that is not finite stays as it is."""
        if self.kind == NONE or not np.isfinite(vector).all():
            return vector
        return self.restore(self.compress(vector), vector.size)

    def nbytes(self, size: int) -> int:
        """Return how many bytes a vector of some size has."""
        if self.kind == INT8:
            return VALUE.itemsize + size
        if self.kind == TOP_K:
            return self.count(size) * (PLACE.itemsize + VALUE.itemsize)
        return size * VALUE.itemsize

    def count(self, size: int) -> int:
        """Return how many of its numbers top-k keeps."""
        return min(ceil(self.share * size), size)


UNCOMPRESSED = Compression()


def _to_int8(vector: Vector) -> bytes:
    largest = np.abs(vector).max(initial=0.0).astype(VALUE)
    scale = LEVELS / float(largest) if largest else 0.0
    levels = np.rint(vector.astype(np.float64) * scale).astype(np.int8)
    return largest.tobytes() + levels.tobytes()


def _from_int8(data: bytes) -> Vector:
    largest = float(np.frombuffer(data, VALUE, 1)[0])
    levels = np.frombuffer(data, np.int8, offset=VALUE.itemsize).astype(np.float64)
    return (levels * (largest / LEVELS)).astype(np.float32)


def _to_top(vector: Vector, count: int) -> bytes:
    sizes = np.abs(vector)
    least = np.partition(sizes, vector.size - count)[vector.size - count] if count else 0.0
    above = np.flatnonzero(sizes > least)
    equal = np.flatnonzero(sizes == least)[: count - len(above)]
    places = np.sort(np.concatenate([above, equal]))
    return places.astype(PLACE).tobytes() + vector[places].astype(VALUE).tobytes()


def _from_top(data: bytes, size: int) -> Vector:
    half = len(data) // 2
    places, values = np.frombuffer(data[:half], PLACE), np.frombuffer(data[half:], VALUE)
    if len(places) and int(places.max()) >= size:
        raise ValueError(f"a place beyond {size} numbers")
    vector = np.zeros(size, dtype=np.float32)
    vector[places] = values + np.float32(0.0)  # -0.0 is 0.0
    return vector
