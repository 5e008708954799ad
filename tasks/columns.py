"""Columns of arrow tables: what they hold, and their values as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa, pc

MAX_SHOWN = 20


def is_text(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds words."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type is one of numbers; true and false are 1 and 0."""
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def holds_images(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds bytes, or as on the hub bytes with the name of a file."""
    kind = column.type
    return bool(pa.types.is_binary(kind) or (pa.types.is_struct(kind) and "bytes" in kind.names))


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a numeric column as float64; true is 1."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column, dtype=np.float64)


def places_in(column: pa.ChunkedArray, values: Sequence[Any]) -> np.ndarray:
    """Return the place of each entry in ``values``, -1 where it is not among them."""
    places = pc.index_in(column, value_set=pa.array(values, type=column.type))
    return np.asarray(pc.fill_null(places, -1))


def blocks(total: int, size: int) -> Iterator[slice]:
    """Cut so many rows into blocks."""
    return (slice(low, min(low + size, total)) for low in range(0, total, size))


def check_columns(table: pa.Table, needed: Sequence[str]) -> None:
    """Refuse a table that lacks a column."""
    present = table.column_names
    known = set(present)
    missing = [name for name in needed if name not in known]
    if missing:
        more = f" and {len(present) - MAX_SHOWN:,} more" if len(present) > MAX_SHOWN else ""
        raise UserError(
            f"The data has no column '{missing[0]}'. Its columns: "
            f"{', '.join(present[:MAX_SHOWN])}{more}."
        )
