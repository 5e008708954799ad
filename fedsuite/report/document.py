"""The parts of a report, before it is HTML or Markdown."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_FILE_NAME = 80


class Bold(str):
    """A table's cell in bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """Commands to type."""

    text: str


@dataclass(frozen=True)
class ReportTable:
    """A table; the first column names the rows. A title is needed only beside other tables."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    title: str = ""

    @property
    def left_aligned(self) -> list[bool]:
        """Whether each column is text, which is aligned on the left; numbers are on the right."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.headings)
        return [index == 0 or not all(map(_is_number, c)) for index, c in enumerate(columns)]


def _is_number(cell: str) -> bool:
    """Return whether a cell has a number, or marks a missing one."""
    missing = cell in ("", "–") or cell.startswith(("none of", "targets differ", "nan"))
    return missing or cell.lstrip("+-")[:1].isdigit()


@dataclass(frozen=True)
class Picture:
    """A figure with its file name, its alternative text and what is written below it."""

    name: str
    alt: str
    figure: Any
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that are hidden until opened."""

    title: str
    blocks: Sequence[Block]


Block = Paragraph | Code | ReportTable | Picture | Fold


@dataclass(frozen=True)
class Section:
    """A part of the report with a title."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """The whole report; ``banner`` warns of runs that are not at the paper's scale."""

    title: str
    banner: str
    sections: Sequence[Section]


def slug(*words: str) -> str:
    """Make a picture's file name of words; a long one is cut and ends in a checksum."""
    text = "-".join(words).lower()
    name = "-".join("".join(c if c.isalnum() else " " for c in text).split())
    if len(name) <= MAX_FILE_NAME:
        return name
    return f"{name[:MAX_FILE_NAME]}-{zlib.crc32(name.encode()):08x}"
