"""Label distribution per client, drawn from a run's settings if its data is on this machine."""

from __future__ import annotations

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report.curves import slug, tag
from fedsuite.report.document import Block, Paragraph, Picture
from fedsuite.report.label_plot import label_figure

MANY_BUBBLES = 2000


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
    from tasks.partitioning import label_counts
    from tasks.task import open_task

    title = f"{column}, seed {run.seed}"
    try:
        spec = run.files.read_config().task
        if spec.partition == OWN:
            return Paragraph(f"{title}: every node has its own data, whose labels are not sent.")
        if not is_local(spec.dataset, spec.data_root):
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
    counts = label_counts(task.split.train, task.dataset.y, task.shape.num_classes)
    figure = label_figure(counts, task.dataset.class_names, tag(collection, title))
    figure.axes[0].collections[0].set_rasterized(counts.size > MANY_BUBBLES)
    held = (counts > 0).sum(axis=1)
    alt = (
        f"{title}: training samples by client and class. {len(counts)} clients hold "
        f"{counts.sum(axis=1).min()} to {counts.sum(axis=1).max()} samples of {held.min()} to "
        f"{held.max()} classes."
    )
    return Picture(slug("labels", column), alt, figure)
