"""What a report is made of, before it is HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class Bold(str):
    """A table's cell that stands out."""

    __slots__ = ()


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines to type."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows. It needs a title only beside others."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    title: str = ""

    @property
    def in_words(self) -> list[bool]:
        """Say for each column whether it holds words, which line up on the left."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.headings)
        return [place == 0 or not all(map(_is_number, c)) for place, c in enumerate(columns)]


def _is_number(cell: str) -> bool:
    """Whether a cell has a number, or stands for one that is not there."""
    missing = cell in ("", "–") or cell.startswith(("none of", "nan"))
    return missing or cell.lstrip("+-")[:1].isdigit()


@dataclass(frozen=True)
class Picture:
    """A figure under a file name, with words for those who do not see it."""

    name: str
    alt: str
    figure: Any


@dataclass(frozen=True)
class Fold:
    """Blocks that open on demand."""

    title: str
    blocks: Sequence[Block]


Block = Text | Code | Table | Picture | Fold


@dataclass(frozen=True)
class Section:
    """A titled part of the report."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """The whole report; ``banner`` warns where the runs are not at a paper's scale."""

    title: str
    banner: str
    sections: Sequence[Section]
