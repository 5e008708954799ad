"""Text for people: numbers of things in words, and what others wrote made safe to show.

A node may send what moves a cursor, forges a line of the log, reverses the direction of writing, or
cannot be encoded. Whatever of its text is used passes through here.
"""

from __future__ import annotations

REPLACEMENT = "\ufffd"
MAX_LINE = 1000


def counted(count: int, noun: str) -> str:
    """Write a number of things, e.g. ``1 round`` and ``2 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def clean_line(text: str, limit: int = MAX_LINE) -> str:
    """Return text as one line of printable characters, cut to ``limit``."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(map(_printable, cut)).strip()


def clean_lines(text: str, limit: int) -> str:
    """Return lines of printable characters, the last ``limit`` characters of them.

    The end is kept, since that of a traceback says what happened.
    """
    lines = text[-limit:].splitlines()
    return "\n".join("".join(map(_printable, line)).rstrip() for line in lines).strip("\n")


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else REPLACEMENT
