"""How rows become what a model takes, once everything is fitted: at training and ever after.

``read`` gives a row's own values as numbers, ``encode`` what the model takes: the same numbers,
scaled. A run keeps its inputs beside its model (:meth:`Inputs.to_document`), so that nobody who
uses it needs the data it was trained on.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa, pc
from tasks.columns import (
    blocks,
    check_columns,
    holds_images,
    is_numeric,
    is_text,
    numbers,
    places_in,
)
from tasks.images import RowName, canvas, decode_images
from tasks.shapes import DataShape

ROW_BLOCK = 1 << 16
PADDING, UNKNOWN_WORD, FIRST_WORD = 0, 1, 2
UNKNOWN_CHARACTER = 0
WORD = re.compile(r"[a-z0-9']+")


@dataclass(frozen=True)
class Inputs(ABC):
    """The fitted inputs of a model; ``kind`` and ``shape`` are those of its ``DataShape``."""

    kind: ClassVar[str]

    @property
    def vocabulary(self) -> int:
        """How many ids there are; 0 where rows are no ids."""
        return 0

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """What a model must know of the size of a row."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that rows must have."""

    @abstractmethod
    def read(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return rows' own values: pixels, numbers and 0 or 1 per category, or ids."""

    def encode(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return rows as the model takes them, images (n, H, W, C)."""
        return self.read(table, row_name, resize)

    def data_shape(self, num_classes: int) -> DataShape:
        """What a model must know."""
        return DataShape(self.kind, self.shape, num_classes, self.vocabulary)

    def to_document(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """Images of one size, each channel standardised."""

    kind: ClassVar[str] = "image"
    column: str
    size: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height, width."""
        return self.size

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of images."""
        return (self.column,)

    def read(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return pixels, 0 to 255, as (n, H, W, C)."""
        return self.read_images(self._images(table), row_name, resize)

    def encode(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return standardised images, (n, H, W, C)."""
        return self.encode_images(self._images(table), row_name, resize)

    def read_images(
        self, images: pa.ChunkedArray, row_name: RowName, resize: bool = False
    ) -> np.ndarray:
        """Return the pixels of a column of images."""
        pixels = canvas(self.size, len(images))
        decode_images(images, self.size, row_name, pixels, resize)
        return pixels

    def encode_images(
        self, images: pa.ChunkedArray, row_name: RowName, resize: bool = False
    ) -> np.ndarray:
        """Return a column of images, standardised."""
        return self.scale(self.read_images(images, row_name, resize))

    def _images(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the column of images, which may have another name if it is the only one."""
        others = [name for name in table.column_names if holds_images(table[name])]
        absent = self.column not in table.column_names
        name = others[0] if absent and len(others) == 1 else self.column
        check_columns(table, [name])
        if not holds_images(table[name]):
            raise UserError(f"Column '{name}' must hold images, not {table[name].type}.")
        return table[name]

    def scale(self, pixels: np.ndarray) -> np.ndarray:
        """Standardise pixels in place."""
        pixels -= np.array(self.mean).astype(np.float32)
        pixels /= np.array(self.std).astype(np.float32)
        return pixels


@dataclass(frozen=True)
class Number:
    """A column of numbers, standardised."""

    name: str
    mean: float
    std: float


@dataclass(frozen=True)
class Category:
    """A column of words: a feature per category, all 0 where the word is none of them."""

    name: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Columns of numbers and of words, in the order of the features."""

    kind: ClassVar[str] = "tabular"
    features: tuple[Number | Category, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of features."""
        return (sum(map(_width, self.features)),)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of numbers and of words."""
        return tuple(feature.name for feature in self.features)

    def read(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return numbers as they are, and 1 for a row's category, as float64."""
        return self._fill(np.zeros((table.num_rows, *self.shape)), table, scaled=False)

    def encode(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return standardised numbers, and 1 for a row's category."""
        return self._fill(np.zeros((table.num_rows, *self.shape), np.float32), table, scaled=True)

    def _fill(self, x: np.ndarray, table: pa.Table, scaled: bool) -> np.ndarray:
        check_columns(table, self.columns)
        start = 0
        for feature in self.features:
            column = table[feature.name]
            if isinstance(feature, Number):
                values = _finite_numbers(feature.name, column)
                x[:, start] = _standardised(feature, values) if scaled else values
            else:
                codes = places_in(_as_words(feature.name, column), feature.categories)
                rows = np.flatnonzero(codes >= 0)
                x[rows, start + codes[rows]] = 1
            start += _width(feature)
        return x


def _width(feature: Number | Category) -> int:
    return 1 if isinstance(feature, Number) else len(feature.categories)


def _finite_numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    if not is_numeric(column.type):
        raise UserError(f"Column '{name}' must hold numbers, not {column.type}.")
    if column.null_count:
        raise UserError(
            f"{column.null_count} rows have no value in column '{name}'. Fill or remove them."
        )
    values = numbers(column)
    if not np.isfinite(values).all():
        raise UserError(f"Column '{name}' has values that are not finite.")
    return values


def _standardised(feature: Number, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x: np.ndarray = ((values - feature.mean) / feature.std).astype(np.float32)
    if not np.isfinite(x).all():
        raise UserError(
            f"Column '{feature.name}' has numbers too far from those of training (mean "
            f"{feature.mean:.3g}, deviation {feature.std:.3g}). Rescale or remove them."
        )
    return x


def _as_words(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise UserError(f"Column '{name}' must hold words, not {column.type}.") from None


@dataclass(frozen=True)
class TokenInputs(Inputs):
    """Texts as the numbers of their words, cut or padded on the right."""

    kind: ClassVar[str] = "tokens"
    column: str
    length: int
    words: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many words of a text count."""
        return (self.length,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of texts."""
        return (self.column,)

    @property
    def vocabulary(self) -> int:
        """How many ids there are: the words, padding and unknown words."""
        return len(self.words) + FIRST_WORD

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, start=FIRST_WORD)}

    def read(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return ids, (n, length)."""
        texts = _texts(table, self.column)
        x = np.full((len(texts), self.length), PADDING, dtype=np.int32)
        for row, words in enumerate(words_of(texts)):
            kept = [self._ids.get(word, UNKNOWN_WORD) for word in words[: self.length]]
            x[row, : len(kept)] = kept
        return x


def words_of(texts: pa.ChunkedArray) -> Iterator[list[str]]:
    """Yield the words of each text."""
    for block in blocks(len(texts), ROW_BLOCK):
        for text in texts[block].to_pylist():
            yield WORD.findall(text.lower())


@dataclass(frozen=True)
class CharacterInputs(Inputs):
    """Texts of one length as the numbers of their characters, 0 being any unknown one."""

    kind: ClassVar[str] = "chars"
    column: str
    length: int
    characters: str

    @property
    def shape(self) -> tuple[int, ...]:
        """How many characters a text has."""
        return (self.length,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of texts."""
        return (self.column,)

    @property
    def vocabulary(self) -> int:
        """How many ids there are: the characters, and one for all others."""
        return len(self.characters) + 1

    def read(self, table: pa.Table, row_name: RowName, resize: bool = False) -> np.ndarray:
        """Return ids, (n, length)."""
        x = np.empty((table.num_rows, self.length), dtype=np.uint8)
        self.read_into(x, _texts(table, self.column), row_name)
        return x

    def read_into(self, out: np.ndarray, texts: pa.ChunkedArray, row_name: RowName) -> None:
        """Write the ids of texts that are as long as the rows of ``out``."""
        codes = np.full(256, UNKNOWN_CHARACTER, dtype=np.uint8)
        alphabet = np.frombuffer(self.characters.encode("ascii"), dtype=np.uint8)
        codes[alphabet] = np.arange(1, len(alphabet) + 1)
        low = 0
        for block in byte_blocks(texts, out.shape[1], row_name):
            out[low : low + len(block)] = codes[block]
            low += len(block)


def byte_blocks(texts: pa.ChunkedArray, width: int, row_name: RowName) -> Iterator[np.ndarray]:
    """View strings of ``width`` characters as blocks of bytes, without copying.

    A character outside ASCII becomes the byte 0, which no text holds.
    """
    row = 0
    for chunk in texts.chunks:
        strings = chunk.cast(pa.large_string())
        if not pc.all(pc.string_is_ascii(strings), min_count=0).as_py():
            strings = pc.replace_substring_regex(strings, r"[^\x00-\x7F]", "\x00")
        wrong = pc.index(pc.equal(pc.binary_length(strings), width), False).as_py()
        if wrong >= 0:
            raise UserError(
                f"{row_name(row + wrong)} has '{strings[wrong]}', which has "
                f"{len(strings[wrong].as_py())} characters where {width} are needed."
            )
        for block in blocks(len(strings), ROW_BLOCK):
            yield _fixed_width_bytes(strings[block], width)
        row += len(strings)


def _fixed_width_bytes(strings: pa.LargeStringArray, width: int) -> np.ndarray:
    _, offsets, data = strings.buffers()
    start = np.frombuffer(offsets, dtype=np.int64)[strings.offset]
    count = len(strings) * width
    return np.frombuffer(data, dtype=np.uint8, count=count, offset=start).reshape(-1, width)


def _texts(table: pa.Table, name: str) -> pa.ChunkedArray:
    check_columns(table, [name])
    column = table[name]
    if not is_text(column):
        raise UserError(f"Column '{name}' must hold texts, not {column.type}.")
    if column.null_count:
        raise UserError(
            f"{column.null_count} rows have no value in column '{name}'. Fill or remove them."
        )
    return column


def read_inputs(document: Mapping[str, Any]) -> Inputs:
    """Read what :meth:`Inputs.to_document` wrote; an invalid one is some error of Python's."""
    kind = str(document["kind"])
    if kind == TableInputs.kind:
        return TableInputs(tuple(map(_read_feature, document["features"])))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in document.items()
        if key != "kind"
    }
    kinds: dict[str, type[Inputs]] = {
        c.kind: c for c in (ImageInputs, TokenInputs, CharacterInputs)
    }
    return kinds[kind](**fields)


def _read_feature(document: Mapping[str, Any]) -> Number | Category:
    if "categories" in document:
        return Category(document["name"], tuple(document["categories"]))
    return Number(document["name"], float(document["mean"]), float(document["std"]))
