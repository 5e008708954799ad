"""Raw inputs as people have them in Python, as the table that a model's inputs are read from."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedsuite.core.settings import UserError
from tasks.inputs import ImageInputs, Inputs, TableInputs


def as_table(inputs: Inputs, given: Any) -> pa.Table:
    """Return raw inputs as a table: rows, columns, images or texts, one or several.

    Images are files' paths, bytes, PIL images or arrays of uint8, (H, W) or (H, W, 3). Rows are
    mappings, one or a list; columns are a mapping of lists, an arrow table or a pandas frame.
    """
    if isinstance(given, pa.Table):
        return given
    if type(given).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if isinstance(given, Mapping):
        several = all(isinstance(v, list | tuple | np.ndarray) for v in given.values())
        return _table(given if several else {name: [value] for name, value in given.items()})
    values = _several(inputs, given)
    if values and all(isinstance(value, Mapping) for value in values):
        return _table({name: [row.get(name) for row in values] for name in values[0]})
    if isinstance(inputs, ImageInputs):
        return pa.table({inputs.column: [{"bytes": _image_bytes(value)} for value in values]})
    if isinstance(inputs, TableInputs):
        raise UserError("Rows of a table must be mappings from columns to values.")
    if not all(isinstance(value, str) for value in values):
        raise UserError(f"Texts must be strings, not {type(values[0]).__name__}.")
    return pa.table({inputs.columns[0]: pa.array(values, pa.string())})


def _several(inputs: Inputs, given: Any) -> Sequence[Any]:
    """Return a sequence of inputs, of one if one is given."""
    if isinstance(given, np.ndarray):
        channels = inputs.shape[0] if isinstance(inputs, ImageInputs) else 0
        is_one = given.ndim == 2 or (given.ndim == 3 and channels == 3)
        return [given] if is_one else list(given)
    return list(given) if isinstance(given, list | tuple) else [given]


def _table(columns: Mapping[str, Any]) -> pa.Table:
    try:
        return pa.table({name: _column(values) for name, values in columns.items()})
    except (pa.ArrowException, TypeError) as error:
        raise UserError(f"The rows are no table: {error}.") from None


def _column(values: Any) -> pa.Array:
    return pa.array(values)


def _image_bytes(value: Any) -> bytes:
    """Return an encoded image, written as PNG if it is in memory, which loses nothing."""
    from PIL import Image

    if isinstance(value, bytes):
        return value
    if isinstance(value, str | os.PathLike):
        try:
            return Path(value).read_bytes()
        except OSError as error:
            raise UserError(f"'{value}' cannot be read: {error.strerror}.") from None
    if isinstance(value, np.ndarray):
        value = Image.fromarray(_checked(value))
    if not isinstance(value, Image.Image):
        raise UserError(
            "An image must be a file's path, bytes, a PIL image or an array, not "
            f"{type(value).__name__}."
        )
    png = io.BytesIO()
    try:
        value.save(png, format="png", compress_level=1)
    except OSError as error:
        raise UserError(f"An image cannot be used: {error}. Convert it to RGB or L.") from None
    return png.getvalue()


def _checked(pixels: np.ndarray) -> np.ndarray:
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype != np.uint8 or pixels.ndim < 2 or pixels.shape[2:] not in ((), (3,)):
        raise UserError(
            "An array of pixels must be of uint8 and (height, width) or (height, width, 3), not of "
            f"{pixels.dtype} and {pixels.shape}."
        )
    return pixels
