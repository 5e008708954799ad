"""From raw rows to arrays a model can train on; everything fitted is fitted on train rows only."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa, pc
from tasks.shapes import DataShape
from tasks.sources import Rows

if TYPE_CHECKING:
    import PIL.Image

    from tasks.datasets import DatasetSpec

VERSION = 1  # raise it when the same rows give other arrays than before
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # naming them spares PIL a try of all it knows
IMAGE_BLOCK = 256
ROW_BLOCK = 1 << 16
MISSING = "?"
PADDING, UNKNOWN_WORD, FIRST_WORD = 0, 1, 2
UNKNOWN_CHARACTER = 0
WORD = re.compile(r"[a-z0-9']+")


@dataclass(frozen=True)
class Written:
    """What a kind's writer found out while it wrote ``x``."""

    input_shape: tuple[int, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    vocabulary: int = 0


def write_arrays(spec: DatasetSpec, rows: Rows, folder: Path) -> tuple[DataShape, tuple[str, ...]]:
    """Write ``x.npy``, ``y.npy`` and, where rows have owners, ``owners.npy``; train rows first."""
    _refuse_nulls(spec, rows)
    written = _WRITERS[spec.kind](spec, rows, folder / "x.npy")
    np.save(folder / "y.npy", written.labels)
    if spec.owner:
        np.save(folder / "owners.npy", _owners(rows, spec.owner))
    names = written.class_names
    return DataShape(spec.kind, written.input_shape, len(names), written.vocabulary), names


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


def is_text(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds words."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(low, min(low + size, total)) for low in range(0, total, size))


def places_in(column: pa.ChunkedArray, values: Sequence[Any]) -> np.ndarray:
    """Return the place of each entry in ``values``, -1 where it is not among them."""
    places = pc.index_in(column, value_set=pa.array(values, type=column.type))
    return np.asarray(pc.fill_null(places, -1))


def _owners(rows: Rows, owner: str) -> np.ndarray:
    column = pa.chunked_array([*rows.train[owner].chunks, *rows.test[owner].chunks])
    return places_in(column, sorted(pc.unique(column).to_pylist())).astype(np.int32)


def encode_labels(spec: DatasetSpec, rows: Rows) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class numbers and names: the data's own names, else the train values or numbers."""
    column = rows.train[spec.label]
    names = rows.class_names
    if names is None and is_text(column):
        names = tuple(sorted(pc.unique(column).to_pylist()))
    elif names is None:
        names = tuple(str(number) for number in range(spec.num_classes))
    labels = []
    for split, table in _splits(rows):
        labels.append(_class_numbers(spec, table[spec.label], names, split))
    return np.concatenate(labels), names


def _class_numbers(
    spec: DatasetSpec, column: pa.ChunkedArray, names: tuple[str, ...], split: str
) -> np.ndarray:
    numbers = places_in(column, names) if is_text(column) else column.to_numpy()
    outside = (numbers < 0) | (numbers >= len(names)) | (numbers != np.floor(numbers))
    if outside.any():
        row = int(np.argmax(outside))
        some = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise UserError(
            f"Dataset '{spec.name}': row {row} of the {split} split has '{column[row]}' in column "
            f"'{spec.label}', which is none of the {len(names)} classes ({some})."
        )
    return numbers.astype(np.int64)


def _write_images(spec: DatasetSpec, rows: Rows, path: Path) -> Written:
    """Decode, then standardise each channel with the mean and deviation of the train pixels.

    Dividing by the largest pixel value first would cancel out, so it is left out.
    """
    labels, names = encode_labels(spec, rows)
    channels, height, width = spec.input_shape
    train_rows, test_rows = rows.train.num_rows, rows.test.num_rows
    x = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float32, shape=(train_rows + test_rows, height, width, channels)
    )
    total, squares = decode_images(spec, rows.train, "train", x[:train_rows])
    decode_images(spec, rows.test, "test", x[train_rows:])
    mean, std = mean_std(total, squares, train_rows * height * width)
    for block in _blocks(len(x), IMAGE_BLOCK):
        pixels = np.asarray(x[block])
        pixels -= mean.astype(np.float32)
        pixels /= std.astype(np.float32)
    x.flush()
    return Written(spec.input_shape, labels, names)


def mean_std(total: np.ndarray, squares: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation from sums; a constant gets deviation 1 and so becomes 0."""
    mean = total / count
    variance = squares / count - mean**2
    return mean, np.sqrt(np.where(variance > 1e-12 * (1 + mean**2), variance, 1.0))


def decode_images(
    spec: DatasetSpec, table: pa.Table, split: str, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Decode a split into ``out``; return the sum and the sum of squares of each channel.

    The sums are of whole numbers below 2**53, so they are exact in any order of the threads.
    """
    from PIL import Image

    Image.init()  # its lazy start is not safe when several threads open their first image
    column = table[str(spec.inputs)]

    def decode(block: slice) -> tuple[np.ndarray, np.ndarray]:
        raw = b"".join(
            _decode_image(spec, image, f"row {row} of the {split} split")
            for row, image in enumerate(column[block].to_pylist(), start=block.start)
        )
        pixels = np.frombuffer(raw, dtype=np.uint8)
        out[block] = pixels.reshape(out[block].shape)
        values = pixels.reshape(-1, out.shape[-1]).astype(np.float64)
        return values.sum(axis=0), np.einsum("pc,pc->c", values, values)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sums = list(pool.map(decode, _blocks(len(out), IMAGE_BLOCK)))
    total, squares = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    return total, squares


def open_image(value: Any) -> PIL.Image.Image:
    """Open an image given as bytes, or as the hub does with the name of its file."""
    from PIL import Image, UnidentifiedImageError

    encoded = value["bytes"] if isinstance(value, dict) else value
    try:
        return Image.open(io.BytesIO(encoded or b""), formats=IMAGE_FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is none of {', '.join(IMAGE_FORMATS)}") from None


def _decode_image(spec: DatasetSpec, value: Any, where: str) -> bytes:
    """Decode an image into as many rows and columns as the spec says."""
    from PIL import Image

    channels, height, width = spec.input_shape
    mode = "L" if channels == 1 else "RGB"
    try:
        image: Image.Image = open_image(value)
        if image.mode.startswith("I"):  # 16 bits of grey, which PIL would cut off above 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image if image.mode == mode else image.convert(mode)
        image.load()
    except Exception as error:  # a damaged file may make PIL raise anything
        path = value.get("path") if isinstance(value, dict) else None
        name = f" ('{path}')" if path else ""
        raise UserError(
            f"Dataset '{spec.name}': {where}{name} has no image that can be decoded in column "
            f"'{spec.inputs}' ({error})."
        ) from error
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return image.tobytes()


def _write_table(spec: DatasetSpec, rows: Rows, path: Path) -> Written:
    labels, names = encode_labels(spec, rows)
    features = []
    for name in spec.inputs:
        train, test = rows.train[name], rows.test[name]
        features.append(_one_hot(train, test) if is_text(train) else _standardise(train, test))
    x = np.concatenate(features, axis=1)
    np.save(path, x)
    return Written(x.shape[1:], labels, names)


def _one_hot(train: pa.ChunkedArray, test: pa.ChunkedArray) -> np.ndarray:
    """Give each category of train a column; what is missing or new in test is all zeros."""
    categories = sorted(set(pc.unique(train).to_pylist()) - {MISSING, None})
    codes = np.concatenate([places_in(train, categories), places_in(test, categories)])
    x: np.ndarray = codes[:, None] == np.arange(len(categories))
    return x.astype(np.float32)


def _standardise(train: pa.ChunkedArray, test: pa.ChunkedArray) -> np.ndarray:
    fitted = np.asarray(train, dtype=np.float64)
    values = np.concatenate([fitted, np.asarray(test, dtype=np.float64)])
    x: np.ndarray = (values - fitted.mean()) / (fitted.std() or 1.0)
    return x.astype(np.float32)[:, None]


def _write_tokens(spec: DatasetSpec, rows: Rows, path: Path) -> Written:
    """Give the words of train ids, most frequent first; cut or pad each text on the right."""
    labels, names = encode_labels(spec, rows)
    column, (length,) = str(spec.inputs), spec.input_shape
    counts: Counter[str] = Counter()
    for words in _words(rows.train[column]):
        counts.update(words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: spec.max_words]
    ids = {word: number for number, word in enumerate(ranked, start=FIRST_WORD)}
    x = np.full((len(labels), length), PADDING, dtype=np.int32)
    texts = (words for _, table in _splits(rows) for words in _words(table[column]))
    for row, words in enumerate(texts):
        kept = [ids.get(word, UNKNOWN_WORD) for word in words[:length]]
        x[row, : len(kept)] = kept
    np.save(path, x)
    return Written((length,), labels, names, vocabulary=len(ids) + FIRST_WORD)


def _words(column: pa.ChunkedArray) -> Iterator[list[str]]:
    for block in _blocks(len(column), ROW_BLOCK):
        for text in column[block].to_pylist():
            yield WORD.findall(text.lower())


def _write_characters(spec: DatasetSpec, rows: Rows, path: Path) -> Written:
    """Give the characters of train ids in their order; the label is the id of the next one."""
    column, (length,) = str(spec.inputs), spec.input_shape
    seen = np.zeros(256, dtype=bool)
    for name, width in ((column, length), (spec.label, 1)):
        for block in _byte_blocks(spec, rows.train, name, width):
            seen[block] = True
    seen[0] = False
    alphabet = np.flatnonzero(seen)
    numbers = np.full(256, UNKNOWN_CHARACTER, dtype=np.uint8)
    numbers[alphabet] = np.arange(1, len(alphabet) + 1)

    total = rows.train.num_rows + rows.test.num_rows
    x = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(total, length))
    labels = np.empty((total, 1), dtype=np.int64)
    for name, out in ((column, x), (spec.label, labels)):
        low = 0
        for _, table in _splits(rows):
            for block in _byte_blocks(spec, table, name, out.shape[1]):
                out[low : low + len(block)] = numbers[block]
                low += len(block)
    x.flush()
    names = ("unknown", *(chr(code) for code in alphabet))
    return Written((length,), labels[:, 0], names, vocabulary=len(names))


def _byte_blocks(spec: DatasetSpec, table: pa.Table, name: str, width: int) -> Iterator[np.ndarray]:
    """View a column of strings of ``width`` characters as blocks of bytes, without copying.

    A character outside ASCII becomes the byte 0, which no text holds.
    """
    row = 0
    for chunk in table[name].chunks:
        strings = chunk.cast(pa.large_string())
        if not pc.all(pc.string_is_ascii(strings), min_count=0).as_py():
            strings = pc.replace_substring_regex(strings, r"[^\x00-\x7F]", "\x00")
        wrong = pc.index(pc.equal(pc.binary_length(strings), width), False).as_py()
        if wrong >= 0:
            raise UserError(
                f"Dataset '{spec.name}': '{strings[wrong]}' (row {row + wrong}) in column "
                f"'{name}' has {len(strings[wrong].as_py())} characters where {width} are needed."
            )
        for block in _blocks(len(strings), ROW_BLOCK):
            yield _fixed_width_bytes(strings[block], width)
        row += len(strings)


def _fixed_width_bytes(strings: pa.LargeStringArray, width: int) -> np.ndarray:
    _, offsets, data = strings.buffers()
    start = np.frombuffer(offsets, dtype=np.int64)[strings.offset]
    count = len(strings) * width
    return np.frombuffer(data, dtype=np.uint8, count=count, offset=start).reshape(-1, width)


_WRITERS: dict[str, Callable[[DatasetSpec, Rows, Path], Written]] = {
    "image": _write_images,
    "tabular": _write_table,
    "tokens": _write_tokens,
    "chars": _write_characters,
}
