"""Label distribution per client: a table for the terminal, a figure, a section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report import drawing
from fedsuite.report.document import Block, Paragraph, Picture, slug

MANY_BUBBLES = 2000
MAX_TABLE_CLIENTS = 40
MAX_PICTURE_CLIENTS = 120
SHADES = "·░▒▓█"
LEGEND = "· none  ░ to 25 %  ▒ to 50 %  ▓ to 75 %  █ to 100 % of the row's largest"
COLOUR = "#0072B2"
CAPTION = "The area of a bubble is how many samples a client has of a class."
FULL_WIDTH = 2 * drawing.WIDTH + 0.2  # of a page with two columns
COLUMN_CLASSES = 24  # as many fit into a column
BESIDE, BELOW = 1.35, 1.0  # inches for bars and labels
LETTER, LEAST_LETTER = 7.2, 5.5
GAP = 2
MIN_ROOM = 8


def label_distribution(collection: Collection) -> list[Block]:
    """Draw the split of every setting's first run."""
    blocks: list[Block] = []
    seen: set[str] = set()
    for column in collection.column_names():
        for run in collection.runs:
            split = str(run.meta.get("split-fingerprint"))
            if run.config and run.labels and collection.column(run) == column and split not in seen:
                seen.add(split)
                blocks.append(_draw(collection, column, run))
                break
    return blocks or [Paragraph("No run's settings can be read, so there is no split to draw.")]


def _draw(collection: Collection, column: str, run: Run) -> Block:
    from tasks.dataset_cache import is_local
    from tasks.task import open_task

    title = f"{column}, seed {run.seed}"
    try:
        spec = run.files.read_config().task
        if spec.partition == OWN:
            return Paragraph(f"{title}: every node has its own data, whose labels are not sent.")
        if not is_local(spec.dataset, spec.data_root, spec.columns):
            return Paragraph(f"{title}: the data of {spec.dataset} is not on this machine.")
        task = open_task(spec)
    except UserError as error:
        return Paragraph(f"{title}: the split cannot be reconstructed here. {error}")
    recorded = run.meta.get("split-fingerprint")
    if task.split.fingerprint != recorded:
        return Paragraph(
            f"{title}: the data here gives the split {task.split.fingerprint}, but the run's was "
            f"{recorded}; it is not drawn."
        )
    counts = task.label_counts()
    figure = label_figure(counts, task.dataset.class_names, collection.tag(title))
    figure.axes[0].collections[0].set_rasterized(counts.size > MANY_BUBBLES)
    held = (counts > 0).sum(axis=1)
    alt = (
        f"{title}: training samples by client and class. {len(counts)} clients hold "
        f"{counts.sum(axis=1).min()} to {counts.sum(axis=1).max()} samples of {held.min()} to "
        f"{held.max()} classes."
    )
    return Picture(slug("labels", column), alt, figure, CAPTION)


def label_table(counts: np.ndarray, class_names: Sequence[str], width: int) -> Table:
    """Return one row per client and a cell per class, shaded relative to its largest class.

    To fit in ``width`` columns, cells shrink to one character and then neighbouring classes share
    one. After ``MAX_TABLE_CLIENTS`` clients the table only says how many more there are.
    """
    counts = np.asarray(counts)
    rows = counts[:MAX_TABLE_CLIENTS]
    more = len(counts) - len(rows)
    total = counts.sum(axis=0)
    columns = {
        "client": max(6, len(str(len(counts)))),
        "samples": max(7, len(f"{total.sum():,}")),
        "classes": 7,
    }
    if _room(width, columns) < max(MIN_ROOM, counts.shape[1]):
        del columns["classes"]
    room = max(MIN_ROOM, _room(width, columns))
    names, per_cell, cell = _layout(class_names, counts.shape[1], room)

    def add(client: str, row: np.ndarray, style: str | None = None) -> None:
        texts = (client, f"{row.sum():,}", str(np.count_nonzero(row)))[: len(columns)]
        table.add_row(*texts, _cells(row, per_cell, cell), style=style)

    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for name, size in columns.items():
        table.add_column(name, justify="right", no_wrap=True, width=size)
    table.add_column(_ruler(names, per_cell, cell), no_wrap=True, min_width=min(room, len(LEGEND)))
    for client, row in enumerate(rows):
        add(str(client), row)
    if more:
        table.add_row(*[""] * len(columns), f"... and {more} more")
    add("all", total, "bold")
    table.caption = _caption(per_cell)
    table.caption_justify = "left"
    return table


def save_label_png(counts: np.ndarray, class_names: Sequence[str], path: Path, title: str) -> None:
    """Write :func:`label_figure` to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing.style_context():
        label_figure(counts, class_names, title).savefig(path, format="png", dpi=250)


def label_figure(counts: np.ndarray, class_names: Sequence[str], title: str) -> Any:
    """Draw a bubble per client and class, its area the samples, and a bar per client.

    One colour is used and size alone carries the numbers, so it reads the same in grey and to
    the colour-blind. At most ``MAX_PICTURE_CLIENTS`` clients are drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = np.asarray(counts)
    shown = counts[:MAX_PICTURE_CLIENTS]
    clients, classes = shown.shape
    if clients < len(counts):
        title += f" (the first {clients})"
    width = drawing.WIDTH if classes <= COLUMN_CLASSES else FULL_WIDTH
    cell = min((width - BESIDE) / classes, float(np.clip(7 / clients, 0.065, 0.22)))
    figure = Figure(figsize=(width, max(cell * clients, 1.0) + BELOW), layout="constrained")
    FigureCanvasAgg(figure)
    bubbles, bars = figure.subplots(
        1, 2, sharey=True, gridspec_kw={"width_ratios": [width - BESIDE, 0.8]}
    )
    _draw_bubbles(bubbles, shown, _printable(class_names, classes), width - BESIDE, cell)
    _draw_bars(bars, shown)
    drawing.add_title(figure, title)
    return figure


def _printable(class_names: Sequence[str], classes: int) -> list[str]:
    """Return a printable name for every class; numbers where the names do not match."""
    if len(class_names) != classes:
        return [str(label) for label in range(classes)]
    return [
        name if name.isprintable() and name.strip() else repr(name).replace(" ", "␣").strip("'")
        for name in map(str, class_names)
    ]


def _room(width: int, columns: Mapping[str, int]) -> int:
    """Return how many characters are left for the cells."""
    return width - sum(columns.values()) - GAP * len(columns)


def _caption(per_cell: int) -> Text:
    """Explain the shades, and what a cell is where classes share one."""
    shared = f"\n{per_cell} classes to a cell" if per_cell > 1 else ""
    return Text(LEGEND + shared, style="dim not italic")


def _layout(class_names: Sequence[str], classes: int, room: int) -> tuple[list[str], int, int]:
    """Return the names, the number of classes per cell, and the width of a cell in characters."""
    names = _printable(class_names, classes)
    per_cell = max(1, -(-classes // room))
    widest = max(4, *(len(name) + 1 for name in names), 0)
    return names, per_cell, max(1, min(room // max(1, -(-classes // per_cell)), widest))


def _ruler(names: Sequence[str], per_cell: int, cell: int) -> Text:
    """Name the cells: by class if the names fit, else by the number of every tenth cell."""
    if per_cell == 1 and (cell >= 4 or all(len(name) == 1 for name in names)):
        return Text("".join(name[: max(1, cell - 1)].ljust(cell) for name in names))
    line = ""
    for start in range(0, -(-len(names) // per_cell), 10):
        line = line.ljust(start * cell) + str(start * per_cell)
    return Text(line)


def _cells(counts: np.ndarray, per_cell: int, cell: int) -> Text:
    """Shade one row; cells of three characters and more have a gap between them."""
    merged = np.add.reduceat(counts, np.arange(0, len(counts), per_cell))
    levels = np.ceil(4 * merged / max(1, merged.max())).astype(int)
    line = Text()
    for level in levels:
        filled = cell - 1 if cell > 2 else cell
        line.append((SHADES[level] * filled).ljust(cell), style="cyan" if level else "dim")
    return line


def _draw_bubbles(
    axes: Any, counts: np.ndarray, names: Sequence[str], width: float, cell: float
) -> None:
    """Draw the bubbles; the largest one fills its cell, or a little more where cells are small."""
    clients, classes = counts.shape
    rows, columns = np.nonzero(counts)
    largest = max(1, counts.max(initial=0))
    widest = 72 * max(0.92 * cell, 0.1)
    diameter = np.maximum(widest * np.sqrt(counts[rows, columns] / largest), 0.8)
    axes.scatter(columns, rows, s=diameter**2, color=COLOUR, linewidths=0)
    axes.set_xlim(-0.6, classes - 0.4)
    axes.set_ylim(clients - 0.4, -0.6)
    letter, step = _letters(72 * width / classes)
    shown = range(0, classes, step)
    long = max((len(name) for name in names), default=0) > 2
    axes.set_xticks(
        shown, [names[label] for label in shown], fontsize=letter, rotation=90 if long else 0
    )
    letter, step = _letters(72 * cell)
    axes.set_yticks(np.arange(0, clients, step))
    axes.tick_params(axis="y", labelsize=letter)
    axes.grid(True, color="0.5", alpha=0.25, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    axes.set_title(f"largest bubble = {largest:,} samples", fontsize=LETTER, loc="left")


def _letters(room: float) -> tuple[float, int]:
    """Return the size of letters for labels with this room each, and how many share a label."""
    if room >= LEAST_LETTER:
        return min(LETTER, 0.9 * room), 1
    return LETTER, next(step for step in (5, 10, 20, 50, 1000) if step * room >= LETTER)


def _draw_bars(axes: Any, counts: np.ndarray) -> None:
    """Draw how many samples every client has."""
    axes.barh(np.arange(len(counts)), counts.sum(axis=1), height=0.8, color="0.55")
    axes.set_xlabel("samples")
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.tick_params(axis="x", labelsize=LETTER)
    axes.locator_params(axis="x", nbins=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
