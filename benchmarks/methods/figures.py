"""Figures of all methods: accuracies on every dataset, and what attacks leave of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks.claims.rows import Row, by_seed
from benchmarks.methods.rates import GLOBAL, PERSONAL, columns
from benchmarks.methods.rules import by_mean, scores
from fedsuite.core.files import write_atomically
from fedsuite.report.statistics import mean

STYLE: Any = {"svg.hashsalt": "methods", "svg.fonttype": "none", "font.size": 8}
LOOKS = {GLOBAL: ("o", "#1f5fa8"), PERSONAL: ("s", "#c2571a")}


def draw_methods(rows: Sequence[Row], file: Path) -> None:
    """Draw a panel per dataset: mean and range over seeds of global and personal accuracy."""
    if not rows:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = columns(rows, "data")
    names = list(reversed(by_mean(scores(rows, {"data": settings[0]}, PERSONAL))))
    with plt.rc_context(STYLE):
        size = (3.0 * len(settings) + 1.2, 0.9 + 0.2 * len(names))
        figure, panels = plt.subplots(1, len(settings), figsize=size, sharey=True, squeeze=False)
        for axes, setting in zip(panels[0], settings, strict=True):
            for height, name in enumerate(names):
                for metric, (marker, colour) in LOOKS.items():
                    values = by_seed(rows, {"data": setting, "algo": name}, metric).values()
                    _dot(axes, values, height, marker, colour)
            axes.set_title(setting)
            axes.set_xlabel("accuracy (%)")
            axes.grid(axis="x", linewidth=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0][0].set_yticks(range(len(names)), names)
        _save(figure, file)


def _dot(axes: Any, values: Iterable[float], height: int, marker: str, colour: str) -> None:
    shares = [100 * value for value in values]
    if not shares:
        return
    axes.plot([min(shares), max(shares)], [height, height], color=colour, linewidth=1)
    axes.plot(mean(shares), height, marker, color=colour, markersize=4)


def draw_attacks(rows: Sequence[Row], file: Path) -> None:
    """Draw the mean final accuracy of every method under every attack, by colour and number."""
    if not rows:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, attacks = columns(rows, "algo"), columns(rows, "attack")
    found: Mapping[tuple[str, str], list[float]] = {
        (name, attack): list(by_seed(rows, {"attack": attack, "algo": name}, GLOBAL).values())
        for name in names
        for attack in attacks
    }
    means = {place: 100 * mean(values) if values else None for place, values in found.items()}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(1.6 + 0.62 * len(attacks), 1.5 + 0.32 * len(names)))
        grid = [[means[name, attack] for attack in attacks] for name in names]
        shown = [[float("nan") if value is None else value for value in line] for line in grid]
        axes.imshow(shown, cmap="viridis", vmin=0, vmax=100, aspect="auto")
        for row, line in enumerate(grid):
            for column, value in enumerate(line):
                if value is not None:
                    ink = "black" if value > 55 else "white"
                    axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink)
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(attacks)), attacks, rotation=40, ha="right")
        _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure.set_layout_engine("constrained")
    target = BytesIO()
    figure.savefig(target, format="svg", metadata={"Date": None})
    plt.close(figure)
    write_atomically(file, target.getvalue())
