"""The numbers the papers print, read from ``paper_numbers.toml`` beside this file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")
PLUS_MINUS = "±"
Label = str | int | float


@dataclass(frozen=True)
class Number:
    """One printed cell: where it stands, what it measures, its labels and its value.

    Shares are per cent, as printed; ``std`` is None where the paper prints none.
    """

    source: str
    metric: str
    labels: dict[str, Label]
    value: float
    std: float | None


@cache
def paper_numbers() -> tuple[Number, ...]:
    """Return every number of the file, table by table."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["table"]
    return tuple(number for table in tables for number in _numbers(table))


def sources() -> list[str]:
    """Return the tables and sections there are numbers of."""
    return list(dict.fromkeys(number.source for number in paper_numbers()))


def _numbers(table: dict[str, Any]) -> list[Number]:
    found = []
    for row, cells in table["cells"].items():
        for head, cell in zip(table["heads"], cells, strict=True):
            if cell:
                value, _, std = cell.partition(PLUS_MINUS)
                labels = {table["row"]: row, table["column"]: head, **table.get("labels", {})}
                deviation = float(std) if std else None
                found.append(
                    Number(table["source"], table["metric"], labels, float(value), deviation)
                )
    return found
