"""What a dataset is that nobody described: guessed from its columns, completed from its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa, pc
from tasks.columns import check_columns, holds_images, is_text
from tasks.datasets import DatasetSpec
from tasks.own_data import image_shape, label_names, refuse_gaps
from tasks.own_files import IMAGE_COLUMNS
from tasks.own_schema import MAX_MAGNITUDE, MAX_VALUES, natural
from tasks.sources import Rows, class_names

LABEL, OTHER_LABELS = "label", ("labels", "target", "class")
TEXT_COLUMNS = ("text", "sentence")
TEXT_LENGTH, MAX_WORDS = 200, 50_000  # words that count of a text, and of all texts


def complete(spec: DatasetSpec, rows: Rows) -> tuple[DatasetSpec, Rows]:
    """Return what rows say that their spec does not, and the rows as that needs them."""
    if spec.kind and spec.num_classes and (spec.input_shape or spec.kind == "tabular"):
        return spec, rows
    try:
        spec = spec if spec.kind else _with_columns(spec, rows.train)
        columns = list(dict.fromkeys([*_names(spec.inputs), spec.label, *_names(spec.owner or "")]))
        check_columns(rows.test, columns)
        rows = Rows(rows.train.select(columns), rows.test.select(columns), rows.class_names)
        for table in (rows.train, rows.test):
            refuse_gaps(spec, table)
        rows = _with_classes(spec, rows)
        if spec.kind == "image" and not spec.input_shape:
            spec = dataclasses.replace(spec, input_shape=image_shape(spec, rows.train))
        if spec.kind == "tabular":
            rows = _with_one_type(spec, rows)
    except UserError as error:
        raise UserError(f"Dataset '{spec.name}': {error}") from None
    return spec, rows


def _names(inputs: str | Sequence[str]) -> list[str]:
    return ([inputs] if inputs else []) if isinstance(inputs, str) else list(inputs)


def _with_columns(spec: DatasetSpec, table: pa.Table) -> DatasetSpec:
    """Find the label; learn from the inputs asked for, else from images, texts or all the rest."""
    label = _label(spec, table)
    asked = _names(spec.inputs)
    check_columns(table, [label, *asked, *_names(spec.owner or "")])
    rest = asked or sorted(set(table.column_names) - {label, spec.owner})
    if not rest:
        raise UserError(f"There is no column beside '{label}', so nothing to learn from.")
    images = [n for n in rest if holds_images(table[n]) or (n in IMAGE_COLUMNS and not asked)]
    texts = [n for n in rest if is_text(table[n]) and (n in TEXT_COLUMNS or len(asked) == 1)]
    found = dataclasses.replace(spec, label=label, inputs=tuple(rest), kind="tabular")
    if images:
        found = dataclasses.replace(found, inputs=images[0], kind="image")
    elif texts:
        length, words = (TEXT_LENGTH,), MAX_WORDS
        found = dataclasses.replace(
            found, inputs=texts[0], kind="tokens", input_shape=length, max_words=words
        )
    if asked and len(asked) > len(_names(found.inputs)):
        raise UserError(
            f"input-columns has '{found.inputs}', which holds {'images' if images else 'texts'}: "
            "name it alone or leave it out."
        )
    return found


def _label(spec: DatasetSpec, table: pa.Table) -> str:
    """Return the column of labels: the one asked for, else one that is named or marked as such."""
    present = table.column_names
    if spec.label in present:
        return spec.label
    marked = [name for name in present if class_names(table.schema, name)]
    likely = [name for name in OTHER_LABELS if name in present] or marked
    if spec.label == LABEL and len(likely) == 1:
        return likely[0]
    try:
        check_columns(table, [spec.label])
    except UserError as error:
        raise UserError(f"{error} Say by label-column which one is to be learned.") from None
    return spec.label


def _with_classes(spec: DatasetSpec, rows: Rows) -> Rows:
    """Name the classes: as the data does, else by the values that labels have."""
    names = class_names(rows.train.schema, spec.label) or rows.class_names
    if names or (spec.num_classes and not is_text(rows.train[spec.label])):
        return Rows(rows.train, rows.test, names)
    train, test = (_with_words(table, spec.label) for table in (rows.train, rows.test))
    found = {v for t in (train, test) for v in pc.unique(t[spec.label]).to_pylist()}
    if not 2 <= len(found) <= MAX_VALUES:
        raise UserError(
            f"column '{spec.label}' has {len(found):,} different values; classes are 2 to "
            f"{MAX_VALUES:,}. Set label-column to a column of classes."
        )
    return Rows(train, test, tuple(sorted(found, key=natural)))


def _with_words(table: pa.Table, name: str) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, label_names(table[name], name))


def _with_one_type(spec: DatasetSpec, rows: Rows) -> Rows:
    """Let a column hold words, or numbers, in both splits; refuse too many different words."""
    test = rows.test
    for name in _names(spec.inputs):
        if is_text(rows.train[name]):
            test = _with_words(test, name)
            count = pc.count_distinct(rows.train[name]).as_py()
            if count > MAX_VALUES:
                raise UserError(
                    f"column '{name}' has {count:,} different words, more than the {MAX_VALUES:,} "
                    "that categories may be. Leave it out by input-columns, or name it alone there "
                    "to learn from it as text."
                )
        elif is_text(test[name]):
            raise UserError(f"column '{name}' holds numbers in train and words in test.")
        elif max(_largest(table[name]) for table in (rows.train, test)) > MAX_MAGNITUDE:
            raise UserError(f"column '{name}' has numbers above {MAX_MAGNITUDE:g}. Rescale it.")
    return dataclasses.replace(rows, test=test)


def _largest(column: pa.ChunkedArray) -> float:
    return float(np.abs(np.asarray(column, dtype=np.float64)).max())
