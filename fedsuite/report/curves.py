"""Accuracy by round and by compute seconds, time to target, clients' own accuracy."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence

from fedsuite.records.reader import Collection, Run
from fedsuite.report import figures
from fedsuite.report.document import Block, Picture, Table, Text
from fedsuite.report.results import NONE, cells, spread, value
from fedsuite.report.spread import deviation, mean
from fedsuite.report.style import styles

LONGEST = 80
ACCURACY = {
    "accuracy": "test accuracy (%)",
    "personal_accuracy": "clients' own test accuracy (%)",
}


def slug(*words: str) -> str:
    """Make a file name of words; of very many, the first ones and a mark."""
    text = "-".join(words).lower()
    name = "-".join("".join(c if c.isalnum() else " " for c in text).split())
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{zlib.crc32(name.encode()):08x}"


def tag(collection: Collection, text: str) -> str:
    """Mark a title where the runs are smaller than the paper's."""
    return f"{text} (small scale)" if collection.small else text


def by_round(collection: Collection) -> list[Block]:
    """Draw accuracy by round for every setting."""
    return _accuracy(collection, "round", "round", lambda run: {})


def by_seconds(collection: Collection) -> list[Block]:
    """Draw accuracy by compute seconds for every setting."""
    blocks = _accuracy(collection, "seconds", "compute time so far (s)", seconds_so_far)
    note = "Compute seconds of a round are its slowest client's; a point is a mean over seeds."
    return [Text(note), *blocks] if any(isinstance(b, Picture) for b in blocks) else blocks


def _accuracy(
    collection: Collection, kind: str, x_label: str, clock: Callable[[Run], Mapping[int, float]]
) -> list[Block]:
    blocks: list[Block] = []
    for field, y_label in ACCURACY.items():
        for column in collection.column_names():
            series = {}
            for row in collection.row_names():
                runs = [run for run in collection.usable(row, column) if run.curve(field)]
                line = mean_curve([run.curve(field) for run in runs], [clock(r) for r in runs])
                if line is not None:
                    name = row if all(run.done for run in runs) else f"{row} (not finished)"
                    series[name] = line
            if series:
                looks = styles(name.removesuffix(" (not finished)") for name in series)
                looks |= {n: looks[n.removesuffix(" (not finished)")] for n in series}
                figure = figures.lines(tag(collection, column), x_label, y_label, series, looks)
                ends = ", ".join(f"{name} {line[1][-1]:.1f}" for name, line in series.items())
                alt = f"{column}: {y_label} by {x_label}. At the end: {ends}."
                blocks.append(Picture(slug(field, kind, column), alt, figure))
    return blocks or [Text("No run has recorded accuracies yet.")]


def mean_curve(
    curves: Sequence[Sequence[tuple[int, float]]], clocks: Sequence[Mapping[int, float]]
) -> figures.Line | None:
    """Average curves over the rounds that all of them have, in per cent, with a deviation band.

    With ``clocks`` (seconds by round) the place of a point is the mean time of its round.
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
    """Return the compute seconds up to every round."""
    seconds = itertools.accumulate(row.get("compute_seconds") or 0.0 for row in run.history)
    return {row["round"]: total for row, total in zip(run.history, seconds, strict=True)}


def to_target(collection: Collection) -> list[Block]:
    """Return rounds and compute seconds until the target accuracy."""
    targets = {
        collection.column(run): run.config["target-accuracy"]
        for run in collection.runs
        if run.labels and run.config.get("target-accuracy")
    }
    if not targets:
        return [Text("No target was set; target-accuracy=0.8, say, times the way to 80 %.")]
    rows: list[list[str]] = []
    blocks: list[Block] = []
    looks = styles(collection.row_names())
    rounds = cells(collection, "rounds_to_target")
    seconds = cells(collection, "compute_seconds_to_target")
    for in_rounds, in_seconds in zip(rounds, seconds, strict=True):
        if in_rounds.runs and in_rounds.column in targets:
            reached = f"{len(in_rounds.values)} of {in_rounds.runs}"
            target = f"{100 * targets[in_rounds.column]:g} %"
            texts = [spread(in_rounds.values, 1), spread(in_seconds.values, 2)]
            rows.append([in_rounds.row, in_rounds.column, target, reached, *texts])
    headings = [collection.rows, "setting", "target", "seeds there", "rounds", "compute (s)"]
    caption = f"Mean ± standard deviation over the seeds that reached it; {NONE}: none did."
    for column in targets:
        reached_by = {
            cell.row: (mean(cell.values), deviation(cell.values) or 0.0)
            for cell in rounds
            if cell.column == column and cell.values
        }
        if reached_by:
            title = tag(collection, f"{column}: rounds to {100 * targets[column]:g} %")
            figure = figures.bars(title, "rounds", reached_by, looks)
            alt = title + ": " + ", ".join(f"{n} {m:.1f}" for n, (m, _) in reached_by.items()) + "."
            blocks.append(Picture(slug("rounds-to-target", column), alt, figure))
    return [Table(headings, rows, tag(collection, caption)), *blocks]


def per_client(collection: Collection) -> list[Block]:
    """Draw how accuracy on their own test rows is spread over clients after the last round."""
    looks = styles(collection.row_names())
    blocks: list[Block] = []
    for column in collection.column_names():
        values: dict[str, list[float]] = {}
        for row in collection.row_names():
            for run in collection.usable(row, column):
                values.setdefault(row, []).extend(100 * v for v in last_scores(run))
        values = {row: scores for row, scores in values.items() if scores}
        if values:
            title = tag(collection, column)
            figure = figures.boxes(title, "accuracy on a client's own test rows (%)", values, looks)
            worst = ", ".join(f"{n} {min(v):.0f} to {max(v):.0f}" for n, v in values.items())
            alt = f"{column}: accuracy per client after the last round; from worst to best {worst}."
            blocks.append(Picture(slug("per-client", column), alt, figure))
    if not blocks:
        return [Text("No run scored clients on their own rows; personal-eval=on does.")]
    note = "Boxes hold the middle half of all clients over all seeds, whiskers reach to the ends."
    return [Text(note), *blocks]


def last_scores(run: Run) -> list[float]:
    """Return every client's accuracy the last time it scored itself."""
    last: dict[int, float] = {}
    for row in run.clients():
        if row.get("phase") == "evaluate" and row.get("accuracy") is not None:
            last[row["client"]] = row["accuracy"]
    return [last[client] for client in sorted(last)]


def bytes_moved(collection: Collection) -> list[Block]:
    """Return what travelled, per run and per client and round."""
    lines = []
    up, down = (cells(collection, f"{way}_bytes") for way in ("upload", "download"))
    for sent, received in zip(up, down, strict=True):
        runs = [run for run in collection.usable(sent.row, sent.column) if run.done]
        trained = sum(r.get("clients") or 0 for run in runs for r in run.history)
        if sent.values and received.values and trained:
            each = [sum(value(r, f"{w}_bytes") or 0 for r in runs) for w in ("upload", "download")]
            totals = [f"{mean(c.values) / 1e6:,.2f}" for c in (sent, received)]
            lines.append(
                [sent.row, sent.column, *totals, *(f"{n / trained / 1e3:,.1f}" for n in each)]
            )
    if not lines:
        return [Text("No finished run has counted its bytes yet.")]
    headings = [collection.rows, "setting", "up (MB)", "down (MB)"]
    headings += ["up, each reply (kB)", "down, each reply (kB)"]
    caption = "Vectors of the model and the method, mean of a run; and per client and round."
    return [Table(headings, lines, tag(collection, caption))]
