"""Small line plots for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.text import Text

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800
NAME_LETTERS = 26
COLOURS = ("red", "blue", "green", "yellow", "magenta", "cyan", "bright_black", "bright_red")
Points = Sequence[tuple[int, int]]


def plot_curve(
    xs: Sequence[float], ys: Sequence[float], *, width: int = 60, height: int = 10, x_label: str
) -> str:
    """Draw a curve in braille dots with its scale on the left and its range below."""
    canvas = Canvas(xs, ys, width, height)
    canvas.draw(xs, ys)
    marks = {0: canvas.high, height // 2: (canvas.low + canvas.high) / 2, height - 1: canvas.low}
    lines = []
    for number, cells in enumerate(canvas.cells):
        mark = f"{marks[number]:7.3f} ┤" if number in marks else "        │"
        lines.append(mark + "".join(chr(BLANK + cell) for cell in cells))
    return "\n".join([*lines, canvas.axis(x_label)])


def plot_curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    width: int = 60,
    height: int = 12,
    x_label: str,
) -> Text:
    """Draw several curves over each other in colours, each named beside its end."""
    all_xs = [x for xs, _ in series.values() for x in xs]
    all_ys = [y for _, ys in series.values() for y in ys]
    canvas = Canvas(all_xs, all_ys, width, height)
    ends: list[tuple[float, int, str, str]] = []
    for (name, (xs, ys)), colour in zip(series.items(), itertools.cycle(COLOURS), strict=False):
        last_line = canvas.draw(xs, ys, colour)
        ends.append((ys[-1], last_line, name, colour))
    names: dict[int, tuple[str, str]] = {}
    for _, line, name, colour in sorted(ends, key=lambda end: -end[0]):
        names[_free_line(line, names, height)] = (name, colour)
    text = Text()
    for number in range(height):
        level = canvas.high - (canvas.high - canvas.low) * number / (height - 1)
        marked = number % 4 == 0 or number == height - 1
        text.append(f"{level:7.2f} ┤" if marked else "        │")
        for cell, colour in zip(canvas.cells[number], canvas.colours[number], strict=True):
            text.append(chr(BLANK + cell), style=colour)
        name, colour = names.get(number, ("", ""))
        short = name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"
        text.append(f" {short}".rstrip() + "\n", style=colour)
    return text.append(canvas.axis(x_label))


class Canvas:
    """A grid of braille cells, 2 dots wide and 4 high, with the ranges of its axes."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], width: int, height: int) -> None:
        self.left, self.right = min(xs), max(xs)
        self.low, self.high = min(ys), max(ys)
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.05, self.high + 0.05
        self.width, self.height = width, height
        self.cells = [[0] * width for _ in range(height)]
        self.colours = [[""] * width for _ in range(height)]

    def draw(self, xs: Sequence[float], ys: Sequence[float], colour: str = "") -> int:
        """Draw a curve; return the line that it ends in."""
        right, top = 2 * self.width - 1, 4 * self.height - 1
        points = [
            (_scale(x, self.left, self.right, right), _scale(y, self.low, self.high, top))
            for x, y in zip(xs, ys, strict=True)
        ]
        for column, row in _trace(points):
            line = self.height - 1 - row // 4
            self.cells[line][column // 2] |= DOTS[3 - row % 4][column % 2]
            self.colours[line][column // 2] = colour
        return self.height - 1 - points[-1][1] // 4

    def axis(self, label: str) -> str:
        """Return the axis below the grid with its range and its label."""
        first, last = f"{self.left:g}", f"{self.right:g}"
        middle = label.center(self.width - len(first) - len(last))
        return "        └" + "─" * self.width + f"\n         {first}{middle}{last}"


def _scale(value: float, low: float, high: float, steps: int) -> int:
    return 0 if high == low else round((value - low) / (high - low) * steps)


def _trace(points: Points) -> Points:
    """Fill in straight lines between neighbouring points."""
    filled = [points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        filled += [
            (x0 + round((x1 - x0) * k / count), y0 + round((y1 - y0) * k / count))
            for k in range(1, count + 1)
        ]
    return filled


def _free_line(wanted: int, taken: Mapping[int, object], height: int) -> int:
    """Return the free line nearest to the wanted one."""
    return min((n for n in range(height) if n not in taken), key=lambda n: (abs(n - wanted), n))
