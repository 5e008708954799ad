"""What nodes say of rows they own, and the one schema that the server makes of it.

Rows never leave their node. It describes them: how many, which classes and columns, sums and
categories. The server makes one :class:`Schema` of all descriptions (:func:`agree`), and every node
makes arrays by it, so that a feature means the same everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsuite.core.settings import UserError
from tasks.datasets import DATASETS
from tasks.preprocess import mean_std
from tasks.shapes import DataShape

KINDS = ("image", "tabular")
MAX_DESCRIPTION = 1 << 20
MAX_ROWS = 10**9
MAX_NAME = 200
MAX_SIDE = 4096
MAX_SHOWN = 10
ROUNDING = 1e-6


@dataclass(frozen=True)
class Description:
    """What a node tells of its rows: ``numbers`` are count, sum and sum of squares by column."""

    kind: str
    rows: int
    classes: tuple[str, ...]
    shape: tuple[int, ...] = ()
    numbers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(vars(self))


@dataclass(frozen=True)
class Schema:
    """How rows become arrays, the same at every node: ``scales`` are mean and deviation."""

    dataset: str
    kind: str
    label: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    scales: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]]

    def to_json(self) -> str:
        """Return it as JSON, the same text for the same schema."""
        return json.dumps(vars(self), sort_keys=True)

    @property
    def data_shape(self) -> DataShape:
        """What a model must know."""
        features = len(self.scales) + sum(len(values) for values in self.categories.values())
        shape = self.shape if self.kind == "image" else (features,)
        return DataShape(self.kind, shape, len(self.classes))


def read_schema(text: str) -> Schema:
    """Read what :meth:`Schema.to_json` wrote."""
    document = json.loads(text)
    lists = {name: tuple(document[name]) for name in ("classes", "shape")}
    tables = {
        name: {key: tuple(values) for key, values in document[name].items()}
        for name in ("scales", "categories")
    }
    return Schema(**(document | lists | tables))


def read_description(text: str) -> Description:
    """Read and check a description that a node sent; raise ``ValueError`` if it is invalid."""
    if len(text) > MAX_DESCRIPTION:
        raise ValueError(f"its description has {len(text):,} characters, too many")
    try:
        document = json.loads(text)
        description = Description(
            kind=str(document["kind"]),
            rows=int(document["rows"]),
            classes=_words(document["classes"]),
            shape=tuple(int(side) for side in document["shape"]),
            numbers={_name(k): _sums(v) for k, v in document["numbers"].items()},
            categories={_name(k): _words(v) for k, v in document["categories"].items()},
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its description is incomplete ({error!r})") from None
    if description.kind not in KINDS or not 1 <= description.rows <= MAX_ROWS:
        raise ValueError(f"{description.rows} rows of kind '{description.kind}' are invalid")
    if description.kind == "image" and (
        len(description.shape) != 3 or not all(1 <= side <= MAX_SIDE for side in description.shape)
    ):
        raise ValueError(f"images of shape {description.shape} are invalid")
    _check_sums(description)
    return description


def _check_sums(description: Description) -> None:
    """Refuse sums that no rows have: of another number of values, or with a negative variance."""
    values = description.rows
    if description.kind == "image":
        values *= description.shape[1] * description.shape[2]
        if set(description.numbers) != {str(c) for c in range(description.shape[0])}:
            raise ValueError("its sums are not those of its images' channels")
    for count, total, squares in description.numbers.values():
        spread = math.sqrt(max(squares, 0.0) / count)
        if count != values or abs(total / count) > spread * (1 + ROUNDING) + ROUNDING:
            raise ValueError("its sums are inconsistent")


def agree(dataset: str, label: str, descriptions: Mapping[str, Description]) -> Schema:
    """Make one schema of the nodes' descriptions; refuse those that do not fit together."""
    first = next(iter(descriptions.values()))
    for node, other in descriptions.items():
        for what, mine, theirs in (
            ("kind of rows", first.kind, other.kind),
            ("columns of numbers", sorted(first.numbers), sorted(other.numbers)),
            ("columns of words", sorted(first.categories), sorted(other.categories)),
        ):
            if mine != theirs and not (what == "columns of numbers" and first.kind == "image"):
                raise UserError(
                    f"The nodes' data do not fit together: {what} {_shown(mine, theirs)} here, "
                    f"{_shown(theirs, mine)} at {node}."
                )
    all_nodes = list(descriptions.values())
    shape = first.shape
    if first.kind == "image":
        shape = (max(d.shape[0] for d in all_nodes), *first.shape[1:])
    spec = DATASETS.get(dataset)
    names = {name for d in all_nodes for name in d.classes}
    if spec is not None and all(name.isdecimal() for name in names):
        names |= {str(number) for number in range(spec.num_classes)}
    if len(names) < 2:
        raise UserError(
            f"All rows of all nodes have one class, '{min(names)}', so there is nothing to learn. "
            f"Check label-column."
        )
    return Schema(
        dataset=dataset,
        kind=first.kind,
        label=spec.label if spec else label,
        classes=tuple(sorted(names, key=_natural)),
        shape=shape,
        scales=_scales(all_nodes, shape),
        categories={
            name: tuple(sorted({v for d in all_nodes for v in d.categories[name]}))
            for name in sorted(first.categories)
        },
    )


def _shown(mine: Any, theirs: Any) -> Any:
    """Return what differs, shortened to what a person reads."""
    if not isinstance(mine, list) or max(len(mine), len(theirs)) <= MAX_SHOWN:
        return mine
    different = sorted(set(mine) - set(theirs))
    return [*different[:MAX_SHOWN], "..."] if len(different) > MAX_SHOWN else different


def _scales(
    descriptions: Sequence[Description], shape: tuple[int, ...]
) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each column over all nodes' rows.

    A node with grey images counts in the first channel alone.
    """
    scales = {}
    names = [str(c) for c in range(shape[0])] if shape else sorted(descriptions[0].numbers)
    for name in names:
        sums = np.array([d.numbers[name] for d in descriptions if name in d.numbers])
        with np.errstate(over="ignore"):
            count, total, squares = sums.sum(axis=0)
        if not np.isfinite(squares):
            raise UserError(
                f"The squares of column '{name}' are too large to be summed over all nodes. "
                "Rescale it or leave it out."
            )
        mean, std = mean_std(np.array(total), np.array(squares), count)
        scales[name] = (float(mean), float(std))
    return scales


def _natural(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal() and len(name) < 18
    return not number, int(name) if number else 0, name


def _words(values: Any) -> tuple[str, ...]:
    fine = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if not fine or any(len(value.encode()) > 4 * MAX_NAME for value in values):
        raise ValueError("names must be a list of short words")
    return tuple(values)


def _name(value: str) -> str:
    value.encode()  # a lone surrogate cannot be printed or sent on
    return value


def _sums(values: Any) -> tuple[float, float, float]:
    count, total, squares = (float(value) for value in values)
    if not all(math.isfinite(value) for value in (count, total, squares)) or count < 1:
        raise ValueError("its sums are not finite numbers")
    return count, total, squares
