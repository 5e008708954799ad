"""From raw rows to arrays a model can train on; everything fitted is fitted on train rows only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa, pc
from tasks.columns import blocks, is_text, numbers, places_in
from tasks.images import IMAGE_BLOCK, RowName, decode_images
from tasks.inputs import (
    Category,
    CharacterInputs,
    ImageInputs,
    Inputs,
    Number,
    TableInputs,
    TokenInputs,
    byte_blocks,
    words_of,
)
from tasks.labels import Labels
from tasks.sources import Rows

if TYPE_CHECKING:
    from tasks.datasets import DatasetSpec

VERSION = 1  # raise it when the same rows give other arrays than before
MISSING = "?"


def write_arrays(spec: DatasetSpec, rows: Rows, folder: Path) -> tuple[Inputs, Labels]:
    """Write ``x.npy``, ``y.npy`` and, where rows have owners, ``owners.npy``; train rows first.

    Return how the rows became arrays.
    """
    _refuse_nulls(spec, rows)
    path = folder / "x.npy"
    if spec.kind == "chars":
        inputs, labels, y = _write_characters(spec, rows, path)
    else:
        labels, y = encode_labels(spec, rows)
        inputs = _WRITERS[spec.kind](spec, rows, path)
    np.save(folder / "y.npy", y)
    if spec.owner:
        np.save(folder / "owners.npy", _owners(rows, spec.owner))
    return inputs, labels


def _refuse_nulls(spec: DatasetSpec, rows: Rows) -> None:
    inputs = (spec.inputs,) if isinstance(spec.inputs, str) else spec.inputs
    for split, table in _splits(rows):
        for name in table.column_names:
            may_miss = name in inputs and spec.kind == "tabular" and is_text(table[name])
            if table[name].null_count and not may_miss:
                raise UserError(
                    f"Dataset '{spec.name}': {table[name].null_count} {split} rows have no value "
                    f"in column '{name}'. Fill or remove those rows."
                )


def _splits(rows: Rows) -> list[tuple[str, pa.Table]]:
    return [("train", rows.train), ("test", rows.test)]


def _row_name(spec: DatasetSpec, split: str) -> RowName:
    return lambda row: f"Dataset '{spec.name}': row {row} of the {split} split"


def _owners(rows: Rows, owner: str) -> np.ndarray:
    column = pa.chunked_array([*rows.train[owner].chunks, *rows.test[owner].chunks])
    return places_in(column, sorted(pc.unique(column).to_pylist())).astype(np.int32)


def encode_labels(spec: DatasetSpec, rows: Rows) -> tuple[Labels, np.ndarray]:
    """Return the classes (the data's own names, else the train values or numbers), and numbers."""
    column = rows.train[spec.label]
    names = rows.class_names
    if names is None and is_text(column):
        names = tuple(sorted(pc.unique(column).to_pylist()))
    elif names is None:
        names = tuple(str(number) for number in range(spec.num_classes))
    labels = Labels(spec.label, names, numbered=not is_text(column))
    encoded = [
        labels.encode(table[spec.label], _row_name(spec, split)) for split, table in _splits(rows)
    ]
    return labels, np.concatenate(encoded)


def _write_images(spec: DatasetSpec, rows: Rows, path: Path) -> Inputs:
    """Decode, then standardise each channel with the mean and deviation of the train pixels.

    Dividing by the largest pixel value first would cancel out, so it is left out.
    """
    column, (channels, height, width) = str(spec.inputs), spec.input_shape
    train_rows, test_rows = rows.train.num_rows, rows.test.num_rows
    x = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float32, shape=(train_rows + test_rows, height, width, channels)
    )
    places = {"train": x[:train_rows], "test": x[train_rows:]}
    sums = {
        split: decode_images(table[column], spec.input_shape, _row_name(spec, split), places[split])
        for split, table in _splits(rows)
    }
    mean, std = mean_std(*sums["train"], train_rows * height * width)
    inputs = ImageInputs(column, spec.input_shape, tuple(mean.tolist()), tuple(std.tolist()))
    for block in blocks(len(x), IMAGE_BLOCK):
        inputs.scale(np.asarray(x[block]))
    x.flush()
    return inputs


def mean_std(total: np.ndarray, squares: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation from sums; a constant gets deviation 1 and so becomes 0."""
    mean = total / count
    variance = squares / count - mean**2
    return mean, np.sqrt(np.where(variance > 1e-12 * (1 + mean**2), variance, 1.0))


def _write_table(spec: DatasetSpec, rows: Rows, path: Path) -> Inputs:
    inputs = TableInputs(tuple(_fit(name, rows.train[name]) for name in spec.inputs))
    encoded = [inputs.encode(table, _row_name(spec, split)) for split, table in _splits(rows)]
    np.save(path, np.concatenate(encoded))
    return inputs


def _fit(name: str, train: pa.ChunkedArray) -> Number | Category:
    """Standardise numbers; give each word of train a feature, but none to what is missing."""
    if is_text(train):
        return Category(name, tuple(sorted(set(pc.unique(train).to_pylist()) - {MISSING, None})))
    fitted = numbers(train)
    return Number(name, float(fitted.mean()), float(fitted.std() or 1.0))


def _write_tokens(spec: DatasetSpec, rows: Rows, path: Path) -> Inputs:
    """Give the words of train ids, most frequent first."""
    column, (length,) = str(spec.inputs), spec.input_shape
    counts: Counter[str] = Counter()
    for words in words_of(rows.train[column]):
        counts.update(words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: spec.max_words]
    inputs = TokenInputs(column, length, tuple(ranked))
    encoded = [inputs.encode(table, _row_name(spec, split)) for split, table in _splits(rows)]
    np.save(path, np.concatenate(encoded))
    return inputs


def _write_characters(
    spec: DatasetSpec, rows: Rows, path: Path
) -> tuple[Inputs, Labels, np.ndarray]:
    """Give the characters of train ids in their order; the label is the id of the next one."""
    column, (length,) = str(spec.inputs), spec.input_shape
    seen = np.zeros(256, dtype=bool)
    for name, width in ((column, length), (spec.label, 1)):
        for block in byte_blocks(rows.train[name], width, _row_name(spec, "train")):
            seen[block] = True
    seen[0] = False
    characters = "".join(map(chr, np.flatnonzero(seen)))
    inputs = CharacterInputs(column, length, characters)

    total = rows.train.num_rows + rows.test.num_rows
    x = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(total, length))
    y = np.empty((total, 1), dtype=np.int64)
    for name, out in ((column, x), (spec.label, y)):
        low = 0
        for split, table in _splits(rows):
            high = low + table.num_rows
            inputs.read_into(out[low:high], table[name], _row_name(spec, split))
            low = high
    x.flush()
    return inputs, Labels(spec.label, ("unknown", *characters), others=True), y[:, 0]


_WRITERS: dict[str, Callable[[DatasetSpec, Rows, Path], Inputs]] = {
    "image": _write_images,
    "tabular": _write_table,
    "tokens": _write_tokens,
}
