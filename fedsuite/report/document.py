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
    blocks: Sequence[Text | Code | Table | Picture]


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
