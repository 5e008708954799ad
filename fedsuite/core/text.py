"""Numbers of things in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Write a number of things, e.g. ``1 round`` and ``2 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
