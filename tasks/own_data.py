"""Rows that a node owns: described, and turned into arrays by the agreed schema."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid
from tasks.arrow import pa, pc
from tasks.columns import check_columns, holds_images, is_numeric, is_text, numbers, places_in
from tasks.datasets import OWN_SPEC, DatasetSpec, described
from tasks.images import canvas, decode_images, open_image
from tasks.inputs import ImageInputs
from tasks.own_files import IMAGE_COLUMNS
from tasks.own_schema import (
    KINDS,
    LARGEST_IMAGE,
    MAX_DESCRIPTION,
    MAX_MAGNITUDE,
    MAX_NAME,
    MAX_PIXELS,
    MAX_VALUES,
    Description,
    Schema,
)
from tasks.preprocess import MISSING


def form_of(dataset: str, label: str, table: pa.Table) -> DatasetSpec:
    """Return the columns and the kind of rows: the dataset's, or for ``own`` the table's."""
    if dataset != OWN:
        spec = described(dataset)
        if spec is None:
            raise invalid("dataset", dataset, "this node has data of its own. Use dataset=own.")
        if spec.kind not in KINDS:
            raise invalid(
                "dataset",
                dataset,
                "nodes' own data must be images or tables. Use partitions of this dataset instead.",
            )
        check_columns(table, [*_inputs(spec), spec.label])
        return spec
    check_columns(table, [label])
    others = sorted(name for name in table.column_names if name != label)
    if not others:
        raise UserError(f"There is no column beside '{label}', so nothing to learn from.")
    images = [name for name in others if name in IMAGE_COLUMNS or holds_images(table[name])]
    kind, inputs = ("image", images[0]) if images else ("tabular", tuple(others))
    return dataclasses.replace(OWN_SPEC, kind=kind, inputs=inputs, label=label)


def describe(spec: DatasetSpec, table: pa.Table) -> Description:
    """Describe rows by what the server needs to know, and no more."""
    refuse_gaps(spec, table)
    names = _values(label_names(table[spec.label], spec.label), spec.label)
    if spec.kind == "image":
        description = _describe_images(spec, table, names)
    else:
        description = _describe_table(spec, table, names)
    if (length := len(description.to_json())) > MAX_DESCRIPTION:
        raise UserError(
            f"The data has so many columns and words that its description has {length:,} "
            f"characters, of which the server takes {MAX_DESCRIPTION:,}. Leave some out."
        )
    return description


def _describe_images(spec: DatasetSpec, table: pa.Table, names: tuple[str, ...]) -> Description:
    shape = spec.input_shape or image_shape(spec, table)
    pictures, out = table[str(spec.inputs)], canvas(shape, table.num_rows)
    total, squares = decode_images(pictures, shape, _row_name, out)
    pixels = table.num_rows * shape[1] * shape[2]
    sums = {str(c): (pixels, float(total[c]), float(squares[c])) for c in range(shape[0])}
    return Description(spec.kind, table.num_rows, names, shape, sums)


def _describe_table(spec: DatasetSpec, table: pa.Table, names: tuple[str, ...]) -> Description:
    sums, categories = {}, {}
    for name in _inputs(spec):
        column = table[name]
        if is_text(column):
            categories[name] = tuple(v for v in _values(column, name) if v != MISSING)
            continue
        values = numbers(column)
        with np.errstate(over="ignore", invalid="ignore"):
            found = (float(len(values)), float(values.sum()), float(values @ values))
        if not found[2] <= found[0] * MAX_MAGNITUDE**2:
            raise UserError(
                f"Column '{name}' has numbers so large that their root mean square exceeds "
                f"{MAX_MAGNITUDE:g}. Rescale it or leave it out."
            )
        sums[name] = found
    return Description(spec.kind, table.num_rows, names, (), sums, categories)


def write_own_arrays(table: pa.Table, schema: Schema, folder: Path) -> None:
    """Write ``x.npy`` and ``y.npy`` as the schema says."""
    spec = form_of(schema.dataset, schema.label, table)
    refuse_gaps(spec, table)
    if spec.kind != schema.kind:
        raise UserError(f"The run learns from rows of kind '{schema.kind}', not '{spec.kind}'.")
    np.save(folder / "y.npy", _class_numbers(table[spec.label], schema))
    inputs = schema.inputs
    if isinstance(inputs, ImageInputs):
        x = inputs.encode_images(table[str(spec.inputs)], _row_name, resize=True)
    else:
        x = inputs.encode(table, _row_name)
    np.save(folder / "x.npy", x)


def _row_name(row: int) -> str:
    return f"Row {row} of the node's data"


def _class_numbers(column: pa.ChunkedArray, schema: Schema) -> np.ndarray:
    names = label_names(column, schema.label)
    places = places_in(names, schema.classes).astype(np.int64)
    if (places < 0).any():
        unknown = names[int(np.argmax(places < 0))]
        raise UserError(
            f"Column '{schema.label}' has '{unknown}', which is none of the {len(schema.classes)} "
            f"classes the nodes agreed on at the start ({', '.join(schema.classes[:10])})."
        )
    return places


def _values(column: pa.ChunkedArray, name: str) -> tuple[str, ...]:
    """Return the distinct values of a column; refuse so many, or so long, that they reveal rows."""
    try:
        values = sorted(set(pc.unique(column).to_pylist()) - {None})
    except UnicodeDecodeError:
        raise UserError(f"Column '{name}' has words that are not UTF-8. Save it again.") from None
    if len(values) > MAX_VALUES or any(len(value) > MAX_NAME for value in values):
        raise UserError(
            f"Column '{name}' has {len(values):,} distinct values, or long ones, and all of them "
            f"would be sent to the server. Leave it out, or use at most {MAX_VALUES} short ones."
        )
    return tuple(values)


def label_names(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return labels as words."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise UserError(
            f"Column '{name}' holds {column.type}, which cannot be a class. Use words or numbers."
        ) from None


def refuse_gaps(spec: DatasetSpec, table: pa.Table) -> None:
    """Refuse rows without a label or a number, and columns that no model can learn from."""
    if not table.num_rows:
        raise UserError("The data has no rows.")
    for name in [*_inputs(spec), spec.label]:
        if len(name) > MAX_NAME:
            raise UserError(
                f"Column '{name[:50]}...' has a name of {len(name)} characters; at most {MAX_NAME} "
                "are possible. Rename it."
            )
        column = table[name]
        words = is_text(column)
        gaps = column.null_count
        if name == spec.label and words:
            gaps += pc.sum(pc.equal(column, "")).as_py() or 0
        if gaps and (name == spec.label or not words):
            raise UserError(f"{gaps} rows have no value in column '{name}'. Fill or remove them.")
        is_feature = spec.kind == "tabular" and name != spec.label
        if is_feature and not (words or is_numeric(column.type)):
            raise UserError(
                f"Column '{name}' holds {column.type}, neither numbers nor words. Convert it or "
                "leave it out."
            )
        if pa.types.is_floating(column.type) and not np.isfinite(np.asarray(column)).all():
            raise UserError(f"Column '{name}' has values that are not finite.")


def _inputs(spec: DatasetSpec) -> tuple[str, ...]:
    return (spec.inputs,) if isinstance(spec.inputs, str) else spec.inputs


def image_shape(spec: DatasetSpec, table: pa.Table) -> tuple[int, ...]:
    """Return channels, height and width of the first image."""
    try:
        image = open_image(table[str(spec.inputs)][0].as_py())
    except Exception as error:  # a damaged file may make PIL raise anything
        raise UserError(f"Column '{spec.inputs}' does not hold images ({error}).") from None
    if image.width * image.height > MAX_PIXELS:
        raise UserError(
            f"Images of {image.width}x{image.height} pixels are too large; at most {MAX_PIXELS:,} "
            f"pixels are possible, {LARGEST_IMAGE}. Scale them down."
        )
    grey = image.mode in ("1", "L", "F") or image.mode.startswith("I")
    return (1 if grey else 3), image.height, image.width
