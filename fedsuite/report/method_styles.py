"""The style of a method: the same colour, line and marker in every report.

The colours are those of Okabe and Ito that stand out on white and on black, with a grey for plain
averaging; lines and markers differ too, so that nothing depends on colour alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#888888",
)
COLOURS = (ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY)
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Style:
    """Colour, line and marker."""

    colour: str
    line: str
    marker: str


# The papers' methods and plain averaging have a colour of their own; baselines share by line.
FIXED = {
    "fedavg": Style(GREY, "-", "o"),
    "taco": Style(RED, "-", "s"),
    "feda4": Style(BLUE, "-", "^"),
    "fedbac": Style(GREEN, "-", "D"),
    "fedadw": Style(ORANGE, "-", "v"),
    "fedprox": Style(SKY, "--", "P"),
    "scaffold": Style(PINK, "--", "X"),
    "avg": Style(GREY, ":", "s"),
    "local": Style(GREY, "--", "X"),
    "foolsgold": Style(ORANGE, "--", "o"),
    "stem": Style(GREEN, "--", "s"),
    "fedacg": Style(BLUE, "--", "v"),
    "pfedme": Style(PINK, ":", "^"),
    "fedfomo": Style(SKY, ":", "D"),
    "apple": Style(GREEN, ":", "P"),
    "fedamp": Style(BLUE, ":", "X"),
    "fedtgp": Style(RED, ":", "o"),
    "feddual": Style(ORANGE, ":", "s"),
    "fedprox-tailored": Style(SKY, "-.", "P"),
    "scaffold-tailored": Style(PINK, "-.", "X"),
}
ANY = tuple(
    Style(colour, line, MARKERS[(index + shift) % len(MARKERS)])
    for shift, line in enumerate(LINES)
    for index, colour in enumerate(COLOURS)
)


def styles_for(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name: a known method's own, else one that differs from the rest."""
    names = list(dict.fromkeys(names))
    chosen = {name: FIXED[name] for name in names if name in FIXED}
    for name in sorted(name for name in names if name not in FIXED):
        start = zlib.crc32(name.encode()) % len(ANY)
        rotated = ANY[start:] + ANY[:start]
        method = name.split(" (")[0]
        own = [FIXED[method]] if method in FIXED else []
        chosen[name] = _distinct([*own, *rotated], chosen)
    return chosen


def _distinct(candidates: list[Style], chosen: Mapping[str, Style]) -> Style:
    """Return the first style of a colour that is not chosen yet, else of another line."""
    colours = {style.colour for style in chosen.values()}
    lines = {(style.colour, style.line) for style in chosen.values()}
    fresh = [style for style in candidates if style.colour not in colours]
    free = [style for style in candidates if (style.colour, style.line) not in lines]
    return (fresh or free or candidates)[0]
