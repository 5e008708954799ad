"""Accuracy per client: the distribution over clients after the last round."""

from __future__ import annotations

from fedsuite.metrics import METRICS, SHORT_TITLES
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report import drawing
from fedsuite.report.cells import cells, mean_and_deviation
from fedsuite.report.document import Block, Paragraph, Picture, ReportTable, slug
from fedsuite.report.method_styles import styles_for

SCORE = METRICS["personal_accuracy"]
CAPTION = (
    "Dots: a client with a seed. Boxes: quartiles and median over all of them; whiskers: minimum "
    "and maximum."
)


def per_client(collection: Collection) -> list[Block]:
    """Draw the distribution of clients' accuracy on their own test samples at the end."""
    styles = styles_for(collection.row_names())
    blocks: list[Block] = []
    for column in collection.column_names():
        values: dict[str, list[float]] = {}
        for row in collection.row_names():
            for run in collection.usable(row, column):
                values.setdefault(row, []).extend(map(SCORE.in_unit, last_scores(run)))
        values = {row: scores for row, scores in values.items() if scores}
        if values:
            title = collection.tag(column)
            figure = drawing.boxes(title, SCORE.heading, values, styles)
            ranges = ", ".join(f"{n} {min(v):.0f} to {max(v):.0f}" for n, v in values.items())
            alt = f"{column}: accuracy per client after the last round; worst to best: {ranges}."
            blocks.append(Picture(slug("per-client", column), alt, figure, CAPTION))
    if not blocks:
        return [Paragraph("No run has accuracies per client. Set personal-eval=on to record them.")]
    return [*_table(collection), *blocks]


def _table(collection: Collection) -> list[ReportTable]:
    """Return personal accuracies of finished runs: at the end, over rounds and over clients."""
    columns = [cells(collection, name) for name in SHORT_TITLES]
    lines = [
        [row[0].row, row[0].column, *(mean_and_deviation(cell.values) for cell in row)]
        for row in zip(*columns, strict=True)
        if row[0].values
    ]
    if not lines:
        return []
    caption = (
        f"Accuracy on clients' own test samples ({SCORE.unit}), mean ± standard deviation over "
        "seeds. The first three are over all clients' samples, the second is a mean over rounds; "
        "the best round is chosen by the number it reports, so it flatters."
    )
    return [ReportTable([collection.rows, "setting", *SHORT_TITLES.values()], lines, caption)]


def last_scores(run: Run) -> list[float]:
    """Return every client's accuracy from its last evaluation."""
    last: dict[int, float] = {}
    for row in run.clients():
        if row.get("phase") == "evaluate" and row.get("accuracy") is not None:
            last[row["client"]] = row["accuracy"]
    return [last[client] for client in sorted(last)]
