"""The numbers that the papers print, read from ``paper_numbers.toml`` beside this file."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from fedsuite.records.collection import PaperNumber

FILE = Path(__file__).with_suffix(".toml")
PLUS_MINUS = "±"


@cache
def paper_numbers() -> tuple[PaperNumber, ...]:
    """Return every number of the file, table by table."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["table"]
    return tuple(number for table in tables for number in _numbers(table))


def sources() -> list[str]:
    """Return the tables and sections that the numbers are from."""
    return list(dict.fromkeys(number.source for number in paper_numbers()))


def _numbers(table: dict[str, Any]) -> list[PaperNumber]:
    found = []
    for row, cells in table["cells"].items():
        targets = table.get("targets", [None] * len(table["heads"]))
        for head, target, cell in zip(table["heads"], targets, cells, strict=True):
            if cell:
                value, _, std = cell.partition(PLUS_MINUS)
                number = PaperNumber(
                    source=table["source"],
                    metric=table["metric"],
                    labels={table["row"]: row, table["column"]: head, **table.get("labels", {})},
                    value=float(value),
                    std=float(std) if std else None,
                    target=target,
                )
                found.append(number)
    return found
