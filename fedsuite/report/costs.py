"""What results cost: rounds and compute time to the target accuracy, communication."""

from __future__ import annotations

from fedsuite.metrics import METRICS, SIZES, TO_TARGET
from fedsuite.records.collection import Collection
from fedsuite.report import drawing
from fedsuite.report.cells import (
    BUSY_MARK,
    NONE,
    TARGETS_DIFFER,
    Cell,
    Target,
    busy_note,
    cells,
    mean_and_deviation,
    target_text,
    targets_differ,
)
from fedsuite.report.document import Block, Paragraph, Picture, ReportTable, slug
from fedsuite.report.method_styles import styles_for
from fedsuite.report.statistics import deviation, mean

ROUNDS, SECONDS = TO_TARGET
BARS = "Bars: mean over the seeds that reached it. Lines: ± one sample standard deviation."
UPLOAD, DOWNLOAD = (METRICS[name] for name in ("upload_bytes", "download_bytes"))
OF_RUN, OF_REPLY = "MB", "kB"


def to_target(collection: Collection) -> list[Block]:
    """Return rounds and compute time to the target accuracy."""
    rounds, seconds = (cells(collection, metric.name) for metric in TO_TARGET)
    pairs = [pair for pair in zip(rounds, seconds, strict=True) if pair[0].targets]
    if not pairs:
        return [Paragraph("No target was set. Set one with, for example, target-accuracy=0.8.")]
    headings = [collection.rows, "setting", "target", "seeds that reached it"]
    headings += [ROUNDS.heading, SECONDS.heading]
    rows = [_line(*pair) for pair in pairs]
    timed = [run for cell, _ in pairs for run in cell.runs]
    parts = [
        f"Mean ± standard deviation over the seeds that reached the target; {NONE}: none did.",
        "Rows with different targets are not comparable." if targets_differ(rounds) else "",
        busy_note(timed),
    ]
    caption = collection.tag(" ".join(part for part in parts if part))
    return [ReportTable(headings, rows, caption), *_bars(collection, rounds)]


def _line(rounds: Cell, seconds: Cell) -> list[str]:
    """Write a method's rounds and seconds to the target of its runs."""
    target = target_text(rounds.targets)
    if len(rounds.targets) > 1:
        return [rounds.row, rounds.column, target, NONE, TARGETS_DIFFER, TARGETS_DIFFER]
    reached = f"{len(rounds.values)} of {len(rounds.runs)}"
    texts = [mean_and_deviation(c.values, c.metric.digits) for c in (rounds, seconds)]
    texts[1] += f" {BUSY_MARK}" if seconds.busy and seconds.values else ""
    return [rounds.row, rounds.column, target, reached, *texts]


def _bars(collection: Collection, rounds: list[Cell]) -> list[Block]:
    """Draw the rounds of every setting, a figure per target."""
    styles, blocks = styles_for(collection.row_names()), []
    figures: dict[tuple[str, Target], dict[str, tuple[float, float]]] = {}
    for cell in rounds:
        if cell.values and cell.targets:
            bar = mean(cell.values), deviation(cell.values) or 0.0
            figures.setdefault((cell.column, cell.targets[0]), {})[cell.row] = bar
    order = {column: place for place, column in enumerate(collection.column_names())}
    for column, target in sorted(figures, key=lambda figure: (order[figure[0]], figure[1])):
        reached_by = figures[column, target]
        title = collection.tag(f"{column}: rounds to {target_text([target])}")
        figure = drawing.bars(title, ROUNDS.unit, reached_by, styles)
        alt = title + ": " + ", ".join(f"{n} {m:.1f}" for n, (m, _) in reached_by.items()) + "."
        blocks.append(Picture(slug("rounds-to-target", column), alt, figure, BARS))
    return [*blocks]


def communication(collection: Collection) -> list[Block]:
    """Return upload and download, per run and per reply of a client."""
    lines = []
    up, down = (cells(collection, metric.name) for metric in (UPLOAD, DOWNLOAD))
    for sent, received in zip(up, down, strict=True):
        runs = [run for run in collection.usable(sent.row, sent.column) if run.done]
        trained = sum(r.get("clients") or 0 for run in runs for r in run.history)
        if sent.values and received.values and trained:
            each = [sum(r.value(m.name) or 0 for r in runs) for m in (UPLOAD, DOWNLOAD)]
            totals = [f"{mean(c.values) / SIZES[OF_RUN]:,.2f}" for c in (sent, received)]
            shares = [f"{n / trained / SIZES[OF_REPLY]:,.1f}" for n in each]
            lines.append([sent.row, sent.column, *totals, *shares])
    if not lines:
        return [Paragraph("No finished run has recorded its communication yet.")]
    headings = [collection.rows, "setting", *(f"{m.title} ({OF_RUN})" for m in (UPLOAD, DOWNLOAD))]
    headings += [f"{m.title} per client and round ({OF_REPLY})" for m in (UPLOAD, DOWNLOAD)]
    caption = "Vectors of the model and the method: totals of a run (mean over seeds)."
    return [ReportTable(headings, lines, collection.tag(caption))]
