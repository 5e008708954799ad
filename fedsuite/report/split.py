"""Who had which labels: the split, drawn again from a run's settings where the data is at hand."""

from __future__ import annotations

from pathlib import Path

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError
from fedsuite.records.reader import Collection, Run
from fedsuite.records.writer import read_config
from fedsuite.report.curves import slug, tag
from fedsuite.report.document import Block, Picture, Text
from fedsuite.report.label_plot import label_figure

MANY_BUBBLES = 2000


def label_split(collection: Collection) -> list[Block]:
    """Draw one split per setting, that of its first run."""
    blocks: list[Block] = []
    seen: set[str] = set()
    for column in collection.column_names():
        for run in collection.runs:
            mark = str(run.meta.get("split-fingerprint"))
            if run.config and run.labels and collection.column(run) == column and mark not in seen:
                seen.add(mark)
                blocks.append(_draw(collection, column, run))
                break
    return blocks or [Text("No run's settings can be read, so there is no split to draw.")]


def _draw(collection: Collection, column: str, run: Run) -> Block:
    from tasks.dataset_cache import is_local
    from tasks.partitioning import label_counts
    from tasks.task import open_task

    title = f"{column}, seed {run.seed}"
    try:
        spec = read_config(Path(run.folder)).task
        if spec.partition == OWN:
            return Text(f"{title}: every node has rows of its own, and their labels stay there.")
        if not is_local(spec.dataset, spec.data_root):
            return Text(f"{title}: the data of {spec.dataset} is not on this machine.")
        task = open_task(spec)
    except UserError as error:
        return Text(f"{title}: the split cannot be made again here. {error}")
    recorded = run.meta.get("split-fingerprint")
    if task.split.fingerprint != recorded:
        return Text(
            f"{title}: the data here divides as {task.split.fingerprint}, but the run was divided "
            f"as {recorded}; its split is not drawn."
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
