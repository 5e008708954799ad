"""Small line plots for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.text import Text

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800
NAME_LETTERS = 26
COLOURS = ("red", "blue", "green", "yellow", "magenta", "cyan", "bright_black", "bright_red")


def line_plot(
    xs: Sequence[float], ys: Sequence[float], *, width: int = 60, height: int = 10, x_label: str
) -> str:
    """Draw a curve in braille dots with its scale on the left and its range below."""
    low, high = min(ys), max(ys)
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    cells = [[0] * width for _ in range(height)]
    points = [
        (_scale(x, xs[0], xs[-1], 2 * width - 1), _scale(y, low, high, 4 * height - 1))
        for x, y in zip(xs, ys, strict=True)
    ]
    for column, row in _trace(points):
        line = height - 1 - row // 4
        cells[line][column // 2] |= DOTS[3 - row % 4][column % 2]
    marks = {0: high, height // 2: (low + high) / 2, height - 1: low}
    lines = []
    for number, line_cells in enumerate(cells):
        mark = f"{marks[number]:7.3f} ┤" if number in marks else "        │"
        lines.append(mark + "".join(chr(BLANK + cell) for cell in line_cells))
    first, last = f"{xs[0]:g}", f"{xs[-1]:g}"
    middle = x_label.center(width - len(first) - len(last))
    return "\n".join([*lines, "        └" + "─" * width, f"         {first}{middle}{last}"])


def _scale(value: float, low: float, high: float, steps: int) -> int:
    return 0 if high == low else round((value - low) / (high - low) * steps)


def _trace(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Fill in straight lines between neighbouring points."""
    filled = [points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        filled += [
            (x0 + round((x1 - x0) * k / count), y0 + round((y1 - y0) * k / count))
            for k in range(1, count + 1)
        ]
    return filled


def lines_plot(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    width: int = 60,
    height: int = 12,
    x_label: str,
) -> Text:
    """Draw several curves over each other in colours, each named beside its end."""
    xs = [x for line_xs, _ in series.values() for x in line_xs]
    ys = [y for _, line_ys in series.values() for y in line_ys]
    low, high = min(ys), max(ys)
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    cells = [[0] * width for _ in range(height)]
    colours = [[""] * width for _ in range(height)]
    names: list[tuple[float, int, str, str]] = []
    for (name, (line_xs, line_ys)), colour in zip(
        series.items(), itertools.cycle(COLOURS), strict=False
    ):
        points = [
            (_scale(x, min(xs), max(xs), 2 * width - 1), _scale(y, low, high, 4 * height - 1))
            for x, y in zip(line_xs, line_ys, strict=True)
        ]
        for column, row in _trace(points):
            line = height - 1 - row // 4
            cells[line][column // 2] |= DOTS[3 - row % 4][column % 2]
            colours[line][column // 2] = colour
        names.append((line_ys[-1], points[-1][1], name, colour))
    ends: dict[int, tuple[str, str]] = {}
    for _, row, name, colour in sorted(names, key=lambda end: -end[0]):
        ends[_free_line(height - 1 - row // 4, ends, height)] = (name, colour)
    text = Text()
    for number in range(height):
        level = high - (high - low) * number / (height - 1)
        text.append(f"{level:7.2f} ┤" if number % 4 == 0 or number == height - 1 else "        │")
        for cell, colour in zip(cells[number], colours[number], strict=True):
            text.append(chr(BLANK + cell), style=colour)
        name, colour = ends.get(number, ("", ""))
        short = name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"
        text.append(f" {short}".rstrip() + "\n", style=colour)
    first, last = f"{min(xs):g}", f"{max(xs):g}"
    middle = x_label.center(width - len(first) - len(last))
    return text.append("        └" + "─" * width + f"\n         {first}{middle}{last}")


def _free_line(wanted: int, taken: Mapping[int, object], height: int) -> int:
    """Return the free line nearest to the wanted one."""
    return min((n for n in range(height) if n not in taken), key=lambda n: (abs(n - wanted), n))
