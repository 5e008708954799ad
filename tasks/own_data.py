"""Rows that a node owns: read from files, described, turned into arrays by the agreed schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid
from tasks.datasets import DATASETS, OWN_SPEC, DatasetSpec
from tasks.own_schema import KINDS, MAX_NAME, Description, Schema
from tasks.preprocess import MISSING, decode_images, is_text, places_in

PICTURES = (".png", ".jpg", ".jpeg", ".webp")
READERS = {".parquet": pq.read_table, ".csv": pyarrow.csv.read_csv}
IMAGE_COLUMNS = ("image", "img")
MAX_VALUES = 1000


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


def column_names(path: Path) -> list[str]:
    """Return the columns of a node's rows by their files' heads; none of a folder of images."""
    found: dict[str, None] = {}
    for file in data_files(path):
        if file.suffix.lower() not in READERS:
            return []
        try:
            is_csv = file.suffix.lower() == ".csv"
            head = pyarrow.csv.open_csv(file).schema if is_csv else pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"'{file}' cannot be read: {error}.") from None
        found |= dict.fromkeys(head.names)
    return list(found)


def form_of(dataset: str, label: str, table: pa.Table) -> DatasetSpec:
    """Return the columns and the kind of rows: the dataset's, or for ``own`` the table's."""
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
    """Describe rows by what the server needs to know, and no more."""
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
    """Return the distinct values of a column; refuse so many, or so long, that they reveal rows."""
    values = sorted(set(pc.unique(column).to_pylist()) - {None})
    if len(values) > MAX_VALUES or any(len(value) > MAX_NAME for value in values):
        raise UserError(
            f"Column '{name}' has {len(values):,} distinct values, or long ones, and all of them "
            f"would be sent to the server. Leave it out, or use at most {MAX_VALUES} short ones."
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
        numeric = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        if spec.kind == "tabular" and name != spec.label and not (words or numeric):
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
