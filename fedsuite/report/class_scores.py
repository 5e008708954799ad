"""Scores beside accuracy: macro-F1, balanced accuracy, AUC, and the accuracy of each class."""

from __future__ import annotations

from collections.abc import Sequence

from fedsuite.core.text import clean_line
from fedsuite.metrics import METRICS
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report.cells import NONE, cells, mean_and_deviation
from fedsuite.report.document import Block, Paragraph, ReportTable
from fedsuite.report.statistics import mean

OF_MODEL = tuple(METRICS[name] for name in ("macro_f1", "balanced_accuracy", "auc"))
OF_CLIENTS = tuple(
    METRICS[f"personal_{name}"] for name in ("macro_f1", "balanced_accuracy", "auc", "worst_tenth")
)
BY_CLASS = tuple(METRICS[name] for name in ("class_accuracy", "personal_class_accuracy"))
MOST_CLASSES = 30


def class_scores(collection: Collection) -> list[Block]:
    """Return tables of these scores at the end of runs, of those that a run has."""
    blocks = [*_scores(collection), *_by_class(collection)]
    if not blocks:
        return [Paragraph("No finished run has recorded scores by class yet.")]
    return blocks


def _scores(collection: Collection) -> list[Block]:
    columns = {m: cells(collection, m.name) for m in (*OF_MODEL, *OF_CLIENTS)}
    known = {m: column for m, column in columns.items() if any(c.values for c in column)}
    lines = [
        [row[0].row, row[0].column, *(mean_and_deviation(cell.values) for cell in row)]
        for row in zip(*known.values(), strict=True)
        if any(cell.values for cell in row)
    ]
    if not lines:
        return []
    caption = (
        "At the end of a run (%), mean ± standard deviation over seeds. Macro-F1 and balanced "
        "accuracy are means over classes, however many samples each has; the worst tenth is the "
        "mean accuracy of the tenth of clients that score lowest. Personal: on clients' own test "
        "samples, taken together."
    )
    headings = [collection.rows, "setting", *(metric.title for metric in known)]
    return [ReportTable(headings, lines, caption)]


def _by_class(collection: Collection) -> list[Block]:
    """Return a table per setting: accuracy by class, a line per method."""
    blocks: list[Block] = []
    for metric in BY_CLASS:
        for column in collection.column_names():
            found = {
                row: [run for run in collection.usable(row, column) if run.summary.get(metric.name)]
                for row in collection.row_names()
            }
            runs = [run for some in found.values() for run in some]
            classes = sorted({key for run in runs for key in run.summary[metric.name]}, key=_order)
            if not runs or len(classes) > MOST_CLASSES:
                continue
            names = runs[0].class_names
            lines = [
                [row, *(_mean(some, f"{metric.name}.{key}") for key in classes)]
                for row, some in found.items()
                if some
            ]
            whose = "" if metric is BY_CLASS[0] else ", on clients' own test samples"
            caption = f"Accuracy of each class (%){whose}, mean over seeds."
            headings = [collection.rows, *(_title(key, names) for key in classes)]
            title = collection.tag(f"{column}: {metric.title}")
            blocks.append(ReportTable(headings, lines, caption, title))
    return blocks


def _mean(runs: Sequence[Run], metric: str) -> str:
    values = [value for run in runs if (value := run.value(metric)) is not None]
    return f"{mean(values):.1f}" if values else NONE


def _order(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdecimal() else (-1, key)


def _title(key: str, names: Sequence[str]) -> str:
    known = key.isdecimal() and int(key) < len(names)
    return clean_line(names[int(key)], 30) if known else key
