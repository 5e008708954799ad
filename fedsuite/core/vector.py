"""A model is one flat float32 vector, a round's updates a matrix of them.

Sums that decide something (lengths, cosines, means) are taken in float64. The PyTorch side of a
vector is :mod:`fedsuite.core.flat_model`; nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]
Doubles = NDArray[np.float64]
BLOCK = 1 << 16  # columns
MOST_COPIED = 1 << 20  # entries


def weighted_sum(weights: np.ndarray, rows: Matrix) -> Vector:
    """Return ``sum_i weights_i rows_i`` as float32: one BLAS call, rows in client order."""
    return np.asarray(weights, dtype=np.float32) @ rows


def sample_weights(num_examples: np.ndarray) -> Doubles:
    """Return ``n_i / sum_j n_j``."""
    counts = np.asarray(num_examples, dtype=np.float64)
    return counts / counts.sum()


def norms(rows: np.ndarray) -> Doubles:
    """Return the length of each row."""
    return np.array([np.sqrt(_dot(row, row)) for row in rows])


def cosines(rows: np.ndarray, direction: np.ndarray, lengths: Doubles | None = None) -> Doubles:
    """Return the cosine of each row with a direction; 0 where either has no length.

    ``lengths`` are those of the rows, if they are known.
    """
    length = np.sqrt(_dot(direction, direction))
    scale = (norms(rows) if lengths is None else lengths) * length
    products = np.array([_dot(row, direction) for row in rows])
    return np.clip(np.divide(products, scale, out=np.zeros_like(products), where=scale > 0), -1, 1)


def mean_row(rows: Matrix) -> Doubles:
    """Return the plain mean of rows, summed in blocks of columns that stay in the cache."""
    blocks = np.array_split(rows, max(rows.shape[1] // BLOCK, 1), axis=1)
    return np.concatenate([block.mean(axis=0, dtype=np.float64) for block in blocks])


def column_blocks(rows: Matrix) -> list[slice]:
    """Return blocks of a matrix's columns, each of which may be copied: they have few entries."""
    count, columns = rows.shape
    width = max(MOST_COPIED // max(count, 1), 1)
    return [slice(start, start + width) for start in range(0, columns, width)]


def squared_distances(rows: Matrix) -> Doubles:
    """Return the squared distance of each row to each, from inner products of centred rows.

    The centre is the row of the middle length: a mean would be wherever a single row drags it, and
    the others' distances would drown in rounding.
    """
    middle = np.argsort(norms(rows), kind="stable")[len(rows) // 2]
    products = np.zeros((len(rows), len(rows)))
    for block in column_blocks(rows):
        part = rows[:, block].astype(np.float64)
        part -= part[middle].copy()
        products += part @ part.T
    squares = np.diag(products)
    return np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)


def is_finite(array: np.ndarray) -> bool:
    """Return whether all numbers are finite; a matrix is looked through row by row."""
    return all(bool(np.isfinite(row).all()) for row in (array if array.ndim > 1 else [array]))


def total_bytes(vectors: Mapping[str, np.ndarray]) -> int:
    """Return how many bytes vectors have together."""
    return sum(vector.nbytes for vector in vectors.values())


def slices(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return where named parts of the given sizes lie, end to end."""
    ends = np.cumsum([0, *sizes.values()]).tolist()
    return {name: slice(a, b) for name, a, b in zip(sizes, ends, ends[1:], strict=False)}


def last_layer(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Return where the last module's parameters (weight, bias) lie in the flat vector."""
    places = slices({name: prod(shape) for name, shape in shapes.items()})
    owner = list(shapes)[-1].rpartition(".")[0]
    return {name: place for name, place in places.items() if name.rpartition(".")[0] == owner}


def layers(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Return where the layers lie, in order: modules with a weight of two dimensions or more.

    A normalisation layer has weights of one dimension; it belongs to the layer before it.
    """
    places = slices({name: prod(shape) for name, shape in shapes.items()})
    owners = {name: name.rpartition(".")[0] for name in shapes}
    weighted = {owners[name] for name, shape in shapes.items() if len(shape) > 1}
    starts: dict[str, int] = {}
    for name, place in places.items():
        if owners[name] in weighted:
            starts.setdefault(owners[name], place.start)
    ends = [*starts.values(), sum(prod(shape) for shape in shapes.values())][1:]
    return {name: slice(a, b) for (name, a), b in zip(starts.items(), ends, strict=True)}


def top_layers(shapes: Mapping[str, tuple[int, ...]], count: int) -> dict[str, slice]:
    """Return where the last ``count`` layers lie; 0 means all, from the first entry on.

    A model without a weight of two dimensions is one layer.
    """
    found = list(layers(shapes).items())
    if shapes and not found:
        return {"model": slice(0, sum(prod(shape) for shape in shapes.values()))}
    chosen = dict(found[-count:])
    if found and len(chosen) == len(found):
        chosen[found[0][0]] = slice(0, found[0][1].stop)
    return chosen


def body_mask(
    shapes: Mapping[str, tuple[int, ...]], head_layers: int, statistics: int
) -> NDArray[np.bool_]:
    """Return what is below the last layers, of all parameters, then statistics, end to end."""
    size = sum(prod(shape) for shape in shapes.values())
    start = next(iter(top_layers(shapes, head_layers).values())).start
    return np.concatenate([np.arange(size) < start, np.full(statistics, start > 0)])


def unnormalised_mask(shapes: Mapping[str, tuple[int, ...]], statistics: int) -> NDArray[np.bool_]:
    """Return what is of no normalisation layer, of all parameters, then statistics, end to end.

    A normalisation layer has weights of one dimension alone.
    """
    owners = {name: name.rpartition(".")[0] for name in shapes}
    weighted = {owners[name] for name, shape in shapes.items() if len(shape) > 1}
    parts = [np.full(prod(shape), owners[name] in weighted) for name, shape in shapes.items()]
    return np.concatenate([*parts, np.zeros(statistics, bool)])


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return the inner product in float64, on one thread: BLAS would start several."""
    return float(np.einsum("i,i->", a, b, dtype=np.float64))
