"""A small line plot for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800


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
