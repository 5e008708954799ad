"""What results cost: rounds and compute time to the target accuracy, communication."""

from __future__ import annotations

from fedsuite.metrics import METRICS, TO_TARGET
from fedsuite.records.collection import Collection
from fedsuite.report import drawing
from fedsuite.report.document import Block, Paragraph, Picture, ReportTable, slug
from fedsuite.report.method_styles import styles_for
from fedsuite.report.results import NONE, cells, mean_and_deviation
from fedsuite.report.statistics import deviation, mean

ROUNDS, SECONDS = TO_TARGET
TARGET, UPLOAD, DOWNLOAD = (
    METRICS[name] for name in ("target_accuracy", "upload_bytes", "download_bytes")
)


def to_target(collection: Collection) -> list[Block]:
    """Return rounds and compute time to the target accuracy."""
    targets = {
        collection.column(run): run.config["target-accuracy"]
        for run in collection.runs
        if run.labels and run.config.get("target-accuracy")
    }
    if not targets:
        return [Paragraph("No target was set. Set one with, for example, target-accuracy=0.8.")]
    rows: list[list[str]] = []
    blocks: list[Block] = []
    styles = styles_for(collection.row_names())
    rounds = cells(collection, ROUNDS.name)
    seconds = cells(collection, SECONDS.name)
    for in_rounds, in_seconds in zip(rounds, seconds, strict=True):
        if in_rounds.runs and in_rounds.column in targets:
            reached = f"{len(in_rounds.values)} of {in_rounds.runs}"
            target = TARGET.with_unit(targets[in_rounds.column])
            texts = [mean_and_deviation(c.values, c.metric.digits) for c in (in_rounds, in_seconds)]
            rows.append([in_rounds.row, in_rounds.column, target, reached, *texts])
    headings = [collection.rows, "setting", "target", "seeds that reached it"]
    headings += [ROUNDS.heading, SECONDS.heading]
    caption = f"Mean ± standard deviation over the seeds that reached the target; {NONE}: none did."
    for column in targets:
        reached_by = {
            cell.row: (mean(cell.values), deviation(cell.values) or 0.0)
            for cell in rounds
            if cell.column == column and cell.values
        }
        if reached_by:
            title = collection.tag(f"{column}: rounds to {TARGET.with_unit(targets[column])}")
            figure = drawing.bars(title, ROUNDS.unit, reached_by, styles)
            alt = title + ": " + ", ".join(f"{n} {m:.1f}" for n, (m, _) in reached_by.items()) + "."
            blocks.append(Picture(slug("rounds-to-target", column), alt, figure))
    return [ReportTable(headings, rows, collection.tag(caption)), *blocks]


def communication(collection: Collection) -> list[Block]:
    """Return upload and download, per run and per reply of a client."""
    lines = []
    up, down = (cells(collection, metric.name) for metric in (UPLOAD, DOWNLOAD))
    for sent, received in zip(up, down, strict=True):
        runs = [run for run in collection.usable(sent.row, sent.column) if run.done]
        trained = sum(r.get("clients") or 0 for run in runs for r in run.history)
        if sent.values and received.values and trained:
            each = [sum(r.value(m.name) or 0 for r in runs) for m in (UPLOAD, DOWNLOAD)]
            totals = [f"{mean(c.values) / 1e6:,.2f}" for c in (sent, received)]
            lines.append(
                [sent.row, sent.column, *totals, *(f"{n / trained / 1e3:,.1f}" for n in each)]
            )
    if not lines:
        return [Paragraph("No finished run has recorded its communication yet.")]
    headings = [collection.rows, "setting", *(f"{m.title} (MB)" for m in (UPLOAD, DOWNLOAD))]
    headings += [f"{m.title} per client and round (kB)" for m in (UPLOAD, DOWNLOAD)]
    caption = "Vectors of the model and the method: totals of a run (mean over seeds)."
    return [ReportTable(headings, lines, collection.tag(caption))]
