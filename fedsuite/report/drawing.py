"""Figures: as wide as a paper's column, with the same bytes for the same numbers.

Pages show them a little larger, which still fits a phone.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsuite.report.method_styles import GREY, Style

INK = "#1f2329"
WIDTH, HEIGHT = 3.4, 2.4
SCREEN = 1.3  # how much larger a page shows a figure
LABEL_LETTERS, SIDE_LETTERS, LEGEND_LETTERS = 30, 18, 44
LINE = 0.15
MARGIN = 0.04
RC_PARAMS: dict[Any, Any] = {
    "svg.hashsalt": "fedsuite",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 8,
    "figure.titlesize": 8.5,
    "figure.titleweight": "bold",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.6,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.8,
    **{
        key: INK
        for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    },
}
Line = tuple[Sequence[float], Sequence[float], Sequence[float] | None, Sequence[float] | None]


def style_context() -> Any:
    """Return a context in which figures are drawn and written."""
    import matplotlib

    return matplotlib.rc_context(RC_PARAMS)


def new_figure(title: str, x_label: str, y_label: str, height: float = HEIGHT) -> tuple[Any, Any]:
    """Return an empty figure and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    add_title(figure, title)
    axes.set_xlabel(textwrap.fill(x_label, LABEL_LETTERS))
    axes.set_ylabel(textwrap.fill(y_label, LABEL_LETTERS))
    if "round" in x_label:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def add_title(figure: Any, title: str) -> None:
    """Put a title above a figure, in as many lines as it needs, for which the figure grows."""
    width, height = figure.get_size_inches()
    text = fit(title, width - 2 * MARGIN)
    figure.set_size_inches(width, height + LINE * text.count("\n"))
    figure.suptitle(text, x=MARGIN / width, ha="left")


def fit(text: str, inches: float) -> str:
    """Break a title into lines that are no wider than this."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(weight=RC_PARAMS["figure.titleweight"])
    size = RC_PARAMS["figure.titlesize"]

    def is_narrow(line: str) -> bool:
        return bool(TextPath((0, 0), line, size, prop=font).get_extents().width <= 72 * inches)

    for letters in range(len(text), 1, -1):
        found = textwrap.wrap(text, letters)
        if all(map(is_narrow, found)):
            return "\n".join(found)
    return text


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Line],
    styles: Mapping[str, Style],
    limits: Mapping[str, float] | None = None,
) -> Any:
    """Draw curves with their bands, and horizontal lines at named limits."""
    height = HEIGHT + legend_height([*series, *(limits or {})])
    figure, axes = new_figure(title, x_label, y_label, height)
    for name, (xs, ys, low, high) in series.items():
        style = styles[name]
        axes.plot(
            xs,
            ys,
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markevery=max(1, len(xs) // 8),
            label=textwrap.fill(name, LEGEND_LETTERS),
        )
        if low is not None and high is not None:
            axes.fill_between(xs, low, high, color=style.colour, alpha=0.18, linewidth=0)
    for name, level in (limits or {}).items():
        axes.axhline(level, color=INK, linewidth=1, linestyle=(0, (1, 2)), label=name)
    add_legend(figure)
    return figure


def add_legend(figure: Any) -> None:
    """Put the legend below the plot, where it covers nothing."""
    names = figure.axes[0].get_legend_handles_labels()[1]
    if names:
        figure.legend(loc="outside lower center", ncols=legend_columns(names))


def legend_columns(names: Sequence[str]) -> int:
    """Return how many names fit side by side."""
    longest = max(map(len, names), default=0)
    return 3 if longest < 12 else 2 if longest < 22 else 1


def legend_height(names: Sequence[str]) -> float:
    """Return the height of a legend."""
    lines = sum(len(textwrap.wrap(name, LEGEND_LETTERS)) for name in names)
    return LINE * -(-lines // legend_columns(names))


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """Label every row with a name, from the top."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def wrapped(names: Iterable[str]) -> tuple[list[str], float]:
    """Wrap names that label rows; return them and the height of the added lines."""
    texts = [textwrap.fill(name, SIDE_LETTERS) for name in names]
    return texts, LINE * sum(text.count("\n") for text in texts)


def bars(
    title: str, x_label: str, values: Mapping[str, tuple[float, float]], styles: Mapping[str, Style]
) -> Any:
    """Draw a bar per name with its deviation and its number."""
    names, more = wrapped(values)
    figure, axes = new_figure(title, x_label, "", 0.85 + 0.27 * len(values) + more)
    positions = range(len(values))
    means = [mean for mean, _ in values.values()]
    spreads = [spread for _, spread in values.values()]
    colours = [styles[name].colour for name in values]
    axes.barh(positions, means, xerr=spreads, color=colours, ecolor=INK, height=0.65)
    for position, mean, spread in zip(positions, means, spreads, strict=True):
        axes.annotate(
            f"{mean:.3g}",
            (mean + spread, position),
            (3, 0),
            textcoords="offset points",
            va="center",
        )
    name_rows(axes, names)
    axes.margins(x=0.15)
    return figure


def boxes(
    title: str, x_label: str, values: Mapping[str, Sequence[float]], styles: Mapping[str, Style]
) -> Any:
    """Draw a box per name with whiskers from minimum to maximum, and every value as a dot."""
    names, more = wrapped(values)
    figure, axes = new_figure(title, x_label, "", 1.0 + 0.34 * len(values) + more)
    positions = list(range(len(values)))
    drawn = axes.boxplot(
        list(values.values()),
        positions=positions,
        orientation="horizontal",
        whis=(0, 100),
        widths=0.6,
        patch_artist=True,
        medianprops={"color": INK, "linewidth": 1.4},
        boxprops={"linewidth": 1},
        whiskerprops={"color": INK},
        capprops={"color": INK},
    )
    for position, (name, box) in enumerate(zip(values, drawn["boxes"], strict=True)):
        box.set(facecolor=styles[name].colour, alpha=0.45, edgecolor=INK)
        shifts = [position + 0.18 * ((k * 7) % 5 - 2) / 2 for k in range(len(values[name]))]
        axes.plot(values[name], shifts, ".", color=styles[name].colour, markersize=4)
    name_rows(axes, names)
    return figure


def scatter(
    title: str,
    x_label: str,
    y_label: str,
    values: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    styles: Mapping[str, Style],
) -> Any:
    """Draw a scatter plot."""
    figure, axes = new_figure(title, x_label, y_label, HEIGHT + legend_height(list(values)))
    for name, (xs, ys) in values.items():
        axes.plot(
            xs, ys, styles[name].marker, color=styles[name].colour, alpha=0.75, ls="", label=name
        )
    add_legend(figure)
    return figure


def lay_out(figure: Any) -> None:
    """Settle a finished figure's layout once for all its files: that takes as long as a file."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def png(figure: Any) -> bytes:
    """Return a figure as PNG on white."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=190, facecolor="white", metadata={"Software": None})
    return target.getvalue()


def svg(figure: Any) -> str:
    """Return a figure as transparent SVG, without dates or random ids."""
    target = io.StringIO()
    hidden = {key: None for key in ("Date", "Creator", "Format", "Type")}
    figure.savefig(target, format="svg", transparent=True, metadata=hidden)
    return target.getvalue()


def pdf(figure: Any) -> bytes:
    """Return a figure as PDF with its fonts inside, without a date."""
    target = io.BytesIO()
    hidden = {key: None for key in ("Creator", "Producer", "CreationDate")}
    figure.savefig(target, format="pdf", transparent=True, metadata=hidden)
    return target.getvalue()


def standalone(text: str) -> str:
    """Add a white background to an SVG that is opened on its own."""
    return re.sub(r"(<svg [^>]*>)", r'\1\n <rect width="100%" height="100%" fill="white"/>', text)


def inline(text: str, name: str) -> str:
    """Prepare an SVG for a page: the page's text colour, unique ids, width to fit."""
    body = text[text.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.S)
    body = body.replace(INK, "currentColor")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = body.replace("url(#", f"url(#{name}-")
    body = re.sub(r' height="[\d.]+pt"', "", body, count=1)
    style = f'style="width:100%;max-width:{pixels(text):.0f}px;height:auto"'
    return re.sub(r' width="[\d.]+pt"', f" {style}", body, count=1).strip()


def pixels(text: str) -> float:
    """Return how many pixels wide a page shows an SVG, if there is room."""
    found = re.search(r'width="([\d.]+)pt"', text)
    assert found is not None
    return SCREEN * float(found[1]) * 4 / 3
