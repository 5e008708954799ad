"""Rows that a node owns: read, described, agreed on, turned into arrays.

Rows never leave their node. It describes them (:func:`describe`): how many, which classes and
columns, sums and categories. The server makes one :class:`Schema` of all descriptions
(:func:`agree`), and every node makes arrays by it, so that a feature means the same everywhere.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid
from tasks.datasets import DATASETS, OWN_SPEC, DatasetSpec
from tasks.preprocess import MISSING, decode_images, is_text, mean_std, places_in
from tasks.shapes import DataShape

KINDS = ("image", "tabular")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
READERS = {".parquet": pq.read_table, ".csv": pyarrow.csv.read_csv}
IMAGE_COLUMNS = ("image", "img")
MAX_DESCRIPTION = 1 << 20
MAX_ROWS = 10**9
MAX_NAME = 200
MAX_VALUES = 1000
ROUNDING = 1e-6


@dataclass(frozen=True)
class Description:
    """What a node says of its rows: ``numbers`` are count, sum and sum of squares by column."""

    kind: str
    rows: int
    classes: tuple[str, ...]
    shape: tuple[int, ...] = ()
    numbers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True)
class Schema:
    """How rows become arrays, the same for everybody: ``scales`` are mean and deviation."""

    dataset: str
    kind: str
    label: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    scales: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]]

    def to_json(self) -> str:
        """Return it as JSON, the same text for the same schema."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @property
    def data_shape(self) -> DataShape:
        """What a model must know."""
        features = len(self.scales) + sum(len(values) for values in self.categories.values())
        shape = self.shape if self.kind == "image" else (features,)
        return DataShape(self.kind, shape, len(self.classes))


def read_schema(text: str) -> Schema:
    """Read what :meth:`Schema.to_json` wrote."""
    document = json.loads(text)
    lists = {name: tuple(document[name]) for name in ("classes", "shape")}
    tables = {
        name: {key: tuple(values) for key, values in document[name].items()}
        for name in ("scales", "categories")
    }
    return Schema(**(document | lists | tables))


def read_description(text: str) -> Description:
    """Read what a node sent, trusting none of it; ``ValueError`` says what is wrong."""
    if len(text) > MAX_DESCRIPTION:
        raise ValueError(f"its description has {len(text):,} characters, too many")
    try:
        document = json.loads(text)
        description = Description(
            kind=str(document["kind"]),
            rows=int(document["rows"]),
            classes=_words(document["classes"]),
            shape=tuple(int(side) for side in document["shape"]),
            numbers={str(k): _sums(v) for k, v in document["numbers"].items()},
            categories={str(k): _words(v) for k, v in document["categories"].items()},
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its description is not complete ({error!r})") from None
    if description.kind not in KINDS or not 1 <= description.rows <= MAX_ROWS:
        raise ValueError(f"{description.rows} rows of kind '{description.kind}' are invalid")
    if description.kind == "image" and (
        len(description.shape) != 3 or not all(1 <= side <= 4096 for side in description.shape)
    ):
        raise ValueError(f"images of shape {description.shape} are invalid")
    _check_sums(description)
    return description


def _check_sums(description: Description) -> None:
    """Refuse sums that no rows have: of another number of values, or with a negative variance."""
    values = description.rows
    if description.kind == "image":
        values *= description.shape[1] * description.shape[2]
        if set(description.numbers) != {str(c) for c in range(description.shape[0])}:
            raise ValueError("its sums are not those of its images' channels")
    for count, total, squares in description.numbers.values():
        spread = math.sqrt(max(squares, 0.0) / count)
        if count != values or abs(total / count) > spread * (1 + ROUNDING) + ROUNDING:
            raise ValueError("its sums are inconsistent")


def read_rows(path: Path, dataset: str, label: str) -> pa.Table:
    """Read a parquet or CSV file, a folder of either, or a folder of images by class."""
    files = data_files(path)
    tables = []
    for file in files:
        if file.suffix.lower() in PICTURES:
            break
        try:
            tables.append(READERS[file.suffix.lower()](file))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"'{file}' cannot be read: {error}.") from None
    if tables:
        return pa.concat_tables(tables, promote_options="permissive")
    spec = DATASETS.get(dataset)
    image, label = (str(spec.inputs), spec.label) if spec else (IMAGE_COLUMNS[0], label)
    images = [{"bytes": file.read_bytes()} for file in files]
    return pa.table({image: images, label: [file.parent.name for file in files]})


def data_files(path: Path) -> list[Path]:
    """Return the files that hold a node's rows, in a fixed order."""
    if path.is_file() and path.suffix.lower() in READERS:
        return [path]
    if path.is_dir():
        for suffix in READERS:
            if files := sorted(path.glob(f"*{suffix}")):
                return files
        if files := sorted(f for f in path.glob("*/*") if f.suffix.lower() in PICTURES):
            return files
    why = "it holds no data" if path.exists() else "there is no such file or folder"
    raise invalid(
        "data-path",
        path,
        f"{why}. Give a .parquet or .csv file, a folder of them, or a folder with one subfolder of "
        "images per class.",
    )


def form_of(dataset: str, label: str, table: pa.Table) -> DatasetSpec:
    """Return the columns and the kind of rows: the dataset's, or for ``own`` as the table has."""
    if dataset != OWN:
        spec = DATASETS[dataset]
        if spec.kind not in KINDS:
            raise invalid(
                "dataset",
                dataset,
                "nodes' own data must be images or tables. Use partitions of this dataset instead.",
            )
        _check_columns(table, [*_inputs(spec), spec.label])
        return spec
    _check_columns(table, [label])
    others = sorted(name for name in table.column_names if name != label)
    if not others:
        raise UserError(f"There is no column beside '{label}', so nothing to learn from.")
    images = [name for name in others if name in IMAGE_COLUMNS or _holds_images(table[name])]
    kind, inputs = ("image", images[0]) if images else ("tabular", tuple(others))
    return dataclasses.replace(OWN_SPEC, kind=kind, inputs=inputs, label=label)


def describe(spec: DatasetSpec, table: pa.Table) -> Description:
    """Return what a server must know of some rows, and no more."""
    _refuse_gaps(spec, table)
    names = _values(_label_names(table[spec.label]), spec.label)
    if spec.kind == "image":
        shape = spec.input_shape or _image_shape(spec, table)
        spec = dataclasses.replace(spec, input_shape=shape)
        total, squares = decode_images(spec, table, "own", _canvas(shape, table.num_rows))
        pixels = table.num_rows * shape[1] * shape[2]
        sums = {str(c): (pixels, float(total[c]), float(squares[c])) for c in range(shape[0])}
        return Description(spec.kind, table.num_rows, names, shape, sums)
    numbers, categories = {}, {}
    for name in _inputs(spec):
        if is_text(table[name]):
            categories[name] = tuple(v for v in _values(table[name], name) if v != MISSING)
        else:
            column = np.asarray(table[name], dtype=np.float64)
            numbers[name] = (float(len(column)), float(column.sum()), float(column @ column))
    return Description(spec.kind, table.num_rows, names, (), numbers, categories)


def agree(dataset: str, label: str, descriptions: Mapping[str, Description]) -> Schema:
    """Make one schema of what nodes say, by node; refuse what does not fit together."""
    first = next(iter(descriptions.values()))
    for node, other in descriptions.items():
        for what, mine, theirs in (
            ("kind of rows", first.kind, other.kind),
            ("columns of numbers", sorted(first.numbers), sorted(other.numbers)),
            ("columns of words", sorted(first.categories), sorted(other.categories)),
        ):
            if mine != theirs and not (what == "columns of numbers" and first.kind == "image"):
                raise UserError(
                    f"The nodes' data do not fit together: {what} {mine} here, {theirs} at {node}."
                )
    everybody = list(descriptions.values())
    shape = first.shape
    if first.kind == "image":
        shape = (max(d.shape[0] for d in everybody), *first.shape[1:])
    spec = DATASETS.get(dataset)
    names = {name for d in everybody for name in d.classes}
    if spec is not None and all(name.isdecimal() for name in names):
        names |= {str(number) for number in range(spec.num_classes)}
    return Schema(
        dataset=dataset,
        kind=first.kind,
        label=spec.label if spec else label,
        classes=tuple(sorted(names, key=_natural)),
        shape=shape,
        scales=_scales(everybody, shape),
        categories={
            name: tuple(sorted({v for d in everybody for v in d.categories[name]}))
            for name in sorted(first.categories)
        },
    )


def write_own_arrays(table: pa.Table, schema: Schema, folder: Path) -> None:
    """Write ``x.npy`` and ``y.npy`` as the schema says."""
    spec = form_of(schema.dataset, schema.label, table)
    _refuse_gaps(spec, table)
    if spec.kind != schema.kind:
        raise UserError(f"The run learns from rows of kind '{schema.kind}', not '{spec.kind}'.")
    np.save(folder / "y.npy", _class_numbers(table[spec.label], schema))
    if schema.kind == "image":
        spec = dataclasses.replace(spec, input_shape=schema.shape)
        x = _canvas(schema.shape, table.num_rows)
        decode_images(spec, table, "own", x)
        mean, std = np.array([schema.scales[str(c)] for c in range(schema.shape[0])]).T
        x = (x - mean.astype(np.float32)) / std.astype(np.float32)
    else:
        _check_columns(table, [*schema.scales, *schema.categories])
        x = np.concatenate(list(_features(table, schema)), axis=1)
    np.save(folder / "x.npy", x)


def _features(table: pa.Table, schema: Schema) -> Iterator[np.ndarray]:
    """Scale numbers; give each agreed category a column, all zeros where it is none of them."""
    for name, (mean, std) in sorted(schema.scales.items()):
        column = np.asarray(table[name], dtype=np.float64)
        yield ((column - mean) / std).astype(np.float32)[:, None]
    for name, values in sorted(schema.categories.items()):
        codes = places_in(table[name].cast(pa.string()), values)
        yield (codes[:, None] == np.arange(len(values))).astype(np.float32)


def _scales(
    everybody: Sequence[Description], shape: tuple[int, ...]
) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each column over all nodes' rows.

    A node with grey images counts in the first channel alone.
    """
    scales = {}
    names = [str(c) for c in range(shape[0])] if shape else sorted(everybody[0].numbers)
    for name in names:
        sums = np.array([d.numbers[name] for d in everybody if name in d.numbers])
        count, total, squares = sums.sum(axis=0)
        mean, std = mean_std(np.array(total), np.array(squares), count)
        scales[name] = (float(mean), float(std))
    return scales


def _class_numbers(column: pa.ChunkedArray, schema: Schema) -> np.ndarray:
    names = _label_names(column)
    numbers = places_in(names, schema.classes).astype(np.int64)
    if (numbers < 0).any():
        unknown = names[int(np.argmax(numbers < 0))]
        raise UserError(
            f"Column '{schema.label}' has '{unknown}', which is none of the {len(schema.classes)} "
            f"classes the nodes agreed on at the start ({', '.join(schema.classes[:10])})."
        )
    return numbers


def _values(column: pa.ChunkedArray, name: str) -> tuple[str, ...]:
    """Return the different words of a column; so many that they tell of rows are not told."""
    values = sorted(set(pc.unique(column).to_pylist()) - {None})
    if len(values) > MAX_VALUES or any(len(value) > MAX_NAME for value in values):
        raise UserError(
            f"Column '{name}' has {len(values):,} different values, or long ones: the server would "
            f"be told each of them. Leave it out, or use at most {MAX_VALUES} short ones."
        )
    return tuple(values)


def _label_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _refuse_gaps(spec: DatasetSpec, table: pa.Table) -> None:
    if not table.num_rows:
        raise UserError("The data has no rows.")
    for name in [*_inputs(spec), spec.label]:
        column = table[name]
        words = is_text(column)
        if column.null_count and (name == spec.label or not words):
            raise UserError(
                f"{column.null_count} rows have no value in column '{name}'. Fill or remove them."
            )
        plain = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        if spec.kind == "tabular" and name != spec.label and not (words or plain):
            raise UserError(f"Column '{name}' holds {column.type}, neither numbers nor words.")
        if pa.types.is_floating(column.type) and not np.isfinite(np.asarray(column)).all():
            raise UserError(f"Column '{name}' has values that are not finite.")


def _check_columns(table: pa.Table, needed: Sequence[str]) -> None:
    for name in needed:
        if name not in table.column_names:
            raise UserError(
                f"The data has no column '{name}'. Its columns: {', '.join(table.column_names)}."
            )


def _inputs(spec: DatasetSpec) -> tuple[str, ...]:
    return (spec.inputs,) if isinstance(spec.inputs, str) else spec.inputs


def _holds_images(column: pa.ChunkedArray) -> bool:
    kind = column.type
    return bool(pa.types.is_binary(kind) or (pa.types.is_struct(kind) and "bytes" in kind.names))


def _image_shape(spec: DatasetSpec, table: pa.Table) -> tuple[int, ...]:
    """Return channels, height and width of the first image."""
    from io import BytesIO

    from PIL import Image

    value = table[str(spec.inputs)][0].as_py()
    try:
        image = Image.open(BytesIO(value["bytes"] if isinstance(value, dict) else value))
    except (OSError, TypeError) as error:
        raise UserError(f"Column '{spec.inputs}' does not hold images ({error}).") from None
    return (1 if image.mode in ("1", "L", "I", "F") else 3), image.height, image.width


def _canvas(shape: tuple[int, ...], rows: int) -> np.ndarray:
    channels, height, width = shape
    return np.empty((rows, height, width, channels), dtype=np.float32)


def _natural(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal() and len(name) < 18
    return not number, int(name) if number else 0, name


def _words(values: Any) -> tuple[str, ...]:
    fine = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if not fine or any(len(value.encode()) > 4 * MAX_NAME for value in values):
        raise ValueError("names must be a list of short words")
    return tuple(values)


def _sums(values: Any) -> tuple[float, float, float]:
    count, total, squares = (float(value) for value in values)
    if not all(math.isfinite(value) for value in (count, total, squares)) or count < 1:
        raise ValueError("its sums are not finite numbers")
    return count, total, squares
