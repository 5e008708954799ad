"""Accuracy by round and by compute time, time to target, accuracy per client, communication."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence

from fedsuite.metrics import ROUND_SCORES
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report import figures
from fedsuite.report.document import Block, Paragraph, Picture, ReportTable
from fedsuite.report.results import NONE, cells, mean_and_deviation
from fedsuite.report.statistics import deviation, mean
from fedsuite.report.style import styles_for

LONGEST = 80
UNFINISHED = " (not finished)"
PERSONAL_SCORE = "accuracy on a client's own test samples (%)"


def slug(*words: str) -> str:
    """Make a file name of words; a long one is cut and ends in a checksum."""
    text = "-".join(words).lower()
    name = "-".join("".join(c if c.isalnum() else " " for c in text).split())
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{zlib.crc32(name.encode()):08x}"


def tag(collection: Collection, text: str) -> str:
    """Mark a title if the runs are at small scale."""
    return f"{text} (small scale)" if collection.small else text


def by_round(collection: Collection) -> list[Block]:
    """Draw accuracy by round for every setting."""
    return _accuracy(collection, "round", "round", lambda run: {})


def by_seconds(collection: Collection) -> list[Block]:
    """Draw accuracy by compute time for every setting."""
    blocks = _accuracy(collection, "seconds", "compute time (s)", seconds_so_far)
    note = "The compute time of a round is its slowest client's; points are means over seeds."
    return [Paragraph(note), *blocks] if any(isinstance(b, Picture) for b in blocks) else blocks


def _accuracy(
    collection: Collection, kind: str, x_label: str, clock: Callable[[Run], Mapping[int, float]]
) -> list[Block]:
    blocks: list[Block] = []
    for metric in ROUND_SCORES:
        field, y_label = metric.name, metric.heading
        for column in collection.column_names():
            series = {}
            for row in collection.row_names():
                runs = [run for run in collection.usable(row, column) if run.curve(field)]
                line = mean_curve([run.curve(field) for run in runs], [clock(r) for r in runs])
                if line is not None:
                    name = row if all(run.done for run in runs) else row + UNFINISHED
                    series[name] = line
            if series:
                styles = styles_for(name.removesuffix(UNFINISHED) for name in series)
                styles |= {n: styles[n.removesuffix(UNFINISHED)] for n in series}
                figure = figures.lines(tag(collection, column), x_label, y_label, series, styles)
                ends = ", ".join(f"{name} {line[1][-1]:.1f}" for name, line in series.items())
                alt = f"{column}: {y_label} by {x_label}. At the end: {ends}."
                blocks.append(Picture(slug(field, kind, column), alt, figure))
    return blocks or [Paragraph("No run has recorded accuracies yet.")]


def mean_curve(
    curves: Sequence[Sequence[tuple[int, float]]], clocks: Sequence[Mapping[int, float]]
) -> figures.Line | None:
    """Average curves over the rounds that all of them have, in per cent, with a deviation band.

    With ``clocks`` (seconds by round) x is the mean time of a round, else its number.
    """
    if not curves:
        return None
    tables = [dict(curve) for curve in curves]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    if not rounds:
        return None
    values = [[100 * table[r] for table in tables] for r in rounds]
    ys = [mean(v) for v in values]
    xs = [mean([clock.get(r, r) for clock in clocks]) for r in rounds]
    if len(curves) < 2:
        return xs, ys, None, None
    half = [deviation(v) or 0.0 for v in values]
    low = [y - h for y, h in zip(ys, half, strict=True)]
    return xs, ys, low, [y + h for y, h in zip(ys, half, strict=True)]


def seconds_so_far(run: Run) -> dict[int, float]:
    """Return the compute time up to every round."""
    seconds = itertools.accumulate(row.get("compute_seconds") or 0.0 for row in run.history)
    return {row["round"]: total for row, total in zip(run.history, seconds, strict=True)}


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
    rounds = cells(collection, "rounds_to_target")
    seconds = cells(collection, "compute_seconds_to_target")
    for in_rounds, in_seconds in zip(rounds, seconds, strict=True):
        if in_rounds.runs and in_rounds.column in targets:
            reached = f"{len(in_rounds.values)} of {in_rounds.runs}"
            target = f"{100 * targets[in_rounds.column]:g} %"
            texts = [mean_and_deviation(c.values, c.metric.digits) for c in (in_rounds, in_seconds)]
            rows.append([in_rounds.row, in_rounds.column, target, reached, *texts])
    headings = [collection.rows, "setting", "target", "seeds that reached it"]
    headings += ["rounds", "compute time (s)"]
    caption = f"Mean ± standard deviation over the seeds that reached the target; {NONE}: none did."
    for column in targets:
        reached_by = {
            cell.row: (mean(cell.values), deviation(cell.values) or 0.0)
            for cell in rounds
            if cell.column == column and cell.values
        }
        if reached_by:
            title = tag(collection, f"{column}: rounds to {100 * targets[column]:g} %")
            figure = figures.bars(title, "rounds", reached_by, styles)
            alt = title + ": " + ", ".join(f"{n} {m:.1f}" for n, (m, _) in reached_by.items()) + "."
            blocks.append(Picture(slug("rounds-to-target", column), alt, figure))
    return [ReportTable(headings, rows, tag(collection, caption)), *blocks]


def per_client(collection: Collection) -> list[Block]:
    """Draw the distribution of clients' accuracy on their own test samples at the end."""
    styles = styles_for(collection.row_names())
    blocks: list[Block] = []
    for column in collection.column_names():
        values: dict[str, list[float]] = {}
        for row in collection.row_names():
            for run in collection.usable(row, column):
                values.setdefault(row, []).extend(100 * v for v in last_scores(run))
        values = {row: scores for row, scores in values.items() if scores}
        if values:
            title = tag(collection, column)
            figure = figures.boxes(title, PERSONAL_SCORE, values, styles)
            ranges = ", ".join(f"{n} {min(v):.0f} to {max(v):.0f}" for n, v in values.items())
            alt = f"{column}: accuracy per client after the last round; worst to best: {ranges}."
            blocks.append(Picture(slug("per-client", column), alt, figure))
    if not blocks:
        return [Paragraph("No run has accuracies per client. Set personal-eval=on to record them.")]
    note = "Boxes show quartiles over all clients and seeds, whiskers minimum and maximum."
    return [Paragraph(note), *blocks]


def last_scores(run: Run) -> list[float]:
    """Return every client's accuracy from its last evaluation."""
    last: dict[int, float] = {}
    for row in run.clients():
        if row.get("phase") == "evaluate" and row.get("accuracy") is not None:
            last[row["client"]] = row["accuracy"]
    return [last[client] for client in sorted(last)]


def communication(collection: Collection) -> list[Block]:
    """Return upload and download, per run and per reply of a client."""
    lines = []
    up, down = (cells(collection, f"{way}_bytes") for way in ("upload", "download"))
    for sent, received in zip(up, down, strict=True):
        runs = [run for run in collection.usable(sent.row, sent.column) if run.done]
        trained = sum(r.get("clients") or 0 for run in runs for r in run.history)
        if sent.values and received.values and trained:
            each = [sum(r.value(f"{w}_bytes") or 0 for r in runs) for w in ("upload", "download")]
            totals = [f"{mean(c.values) / 1e6:,.2f}" for c in (sent, received)]
            lines.append(
                [sent.row, sent.column, *totals, *(f"{n / trained / 1e3:,.1f}" for n in each)]
            )
    if not lines:
        return [Paragraph("No finished run has recorded its communication yet.")]
    headings = [collection.rows, "setting", "upload (MB)", "download (MB)"]
    headings += ["upload per client and round (kB)", "download per client and round (kB)"]
    caption = "Vectors of the model and the method: totals of a run (mean over seeds)."
    return [ReportTable(headings, lines, tag(collection, caption))]
