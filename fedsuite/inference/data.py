"""Rows to predict: of files, or of a run's own test split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, shown
from fedsuite.inference.description import ModelDescription
from fedsuite.records.folder import RunFolder
from tasks.datasets import TABLES
from tasks.evaluation import scored_rows
from tasks.own_files import PICTURES, find_files, is_picture, read_images, read_tables
from tasks.own_schema import read_schema
from tasks.own_task import server_task
from tasks.task import Task, open_task

TEST = "test"
FORMS = (
    f"the word {TEST} for the run's test split, a .parquet or .csv file, an image, a folder of "
    "such files"
)


@dataclass(frozen=True)
class Data:
    """Rows by number: ``encode`` makes some of them what a model takes.

    ``labels`` are class numbers, refused if a row has none; ``label_names`` are as the rows say.
    Both are None where rows have no labels; ``files`` is None where a row is no file.
    """

    count: int
    encode: Callable[[slice], np.ndarray]
    labels: Callable[[], np.ndarray] | None
    label_names: Sequence[str] | None
    files: Sequence[str] | None = None


def open_data(
    name: str, folder: Path, description: ModelDescription, client: int | None, resize: bool
) -> Data:
    """Open what a user names as data: a path, or the test split."""
    if name == TEST:
        return _test_data(RunFolder(folder), description, client)
    path = Path(name).expanduser()
    found = find_files(path, "DATA", (*TABLES, *PICTURES), FORMS)
    if not is_picture(found[0]):
        return _table_data(read_tables(found), description, name, resize)
    image = description.inputs.columns[0]
    if description.inputs.kind != "image":
        raise UserError(f"'{shown(name)}' holds images, and the model takes a column '{image}'.")
    by_class = found[0].parent not in (path, path.parent)
    table = read_images(found, image, description.labels.column if by_class else "")
    names = [str(file.relative_to(path if path.is_dir() else path.parent)) for file in found]
    return _table_data(table, description, name, resize, names)


def _table_data(
    table: pa.Table,
    description: ModelDescription,
    name: str,
    resize: bool,
    files: Sequence[str] | None = None,
) -> Data:
    if not table.num_rows:
        raise UserError(f"'{shown(name)}' has no rows.")
    inputs, labels = description.inputs, description.labels

    def row_name(row: int) -> str:
        return f"'{files[row]}'" if files else f"Row {row} of '{shown(name)}'"

    def encode(block: slice) -> np.ndarray:
        some = table.slice(block.start, block.stop - block.start)
        return inputs.encode(some, lambda row: row_name(block.start + row), resize)

    if labels.column not in table.column_names:
        return Data(table.num_rows, encode, None, None, files)
    column = table[labels.column]
    return Data(
        table.num_rows,
        encode,
        lambda: labels.encode(column, row_name),
        labels.names(column),
        files,
    )


def _test_data(files: RunFolder, description: ModelDescription, client: int | None) -> Data:
    """Return the rows on which the run scored the model: its test rows, or a client's own."""
    if not files.exists:
        raise UserError(f"{files.path} has no settings of a run, so no test split.")
    config = files.read_config()
    if config.partition == OWN:
        schema = read_schema(files.schema_file.read_text())
        task = server_task(
            schema, config.server_data, config.data_root, config.probe_per_class, config.seed
        )
    else:
        task = open_task(config.task)
    if task.dataset.inputs != description.inputs or task.dataset.labels != description.labels:
        raise UserError(
            f"The dataset '{config.dataset}' is here another than that of the run in {files.path}: "
            "it gives other means, categories, words or classes. Give the data as a file."
        )
    rows = scored_rows(task.split.test, config.eval_rows, config.seed)
    whose = "the run has no test rows on this machine"
    if client is not None:
        held = task.split.own_test
        rows = held[client] if client < len(held) else rows[:0]
        whose = f"client {client} has no test rows of its own on this machine"
    if not len(rows):
        raise UserError(f"There is no test split: {whose}. Give a file.")
    return _test_rows(task, rows)


def _test_rows(task: Task, rows: np.ndarray) -> Data:
    x, y = task.dataset.x, task.labels(rows)
    names = [task.dataset.class_names[number] for number in y]
    return Data(len(rows), lambda block: x[rows[block]], lambda: y, names)
