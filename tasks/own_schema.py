"""What nodes say of rows they own, and the one schema that the server makes of it.

Rows never leave their node. It describes them: how many, which classes and columns, sums and
categories. The server makes one :class:`Schema` of all descriptions (:func:`agree`), and every node
makes arrays by it, so that a feature means the same everywhere.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedsuite.core.settings import UserError
from fedsuite.core.text import clean_line
from tasks.datasets import described
from tasks.inputs import Category, ImageInputs, Inputs, Number, TableInputs
from tasks.labels import Labels
from tasks.preprocess import mean_std
from tasks.shapes import DataShape

KINDS = ("image", "tabular")
MAX_DESCRIPTION = 1 << 22
MAX_ROWS = 10**9
MAX_NAME = 200
MAX_SHOWN = 10
ROUNDING = 1e-6
# What nodes may claim, one of them and all together: it decides the size of everybody's model.
MAX_VALUES = 1000  # classes; also categories of a column, of one node
MAX_FEATURES = 50_000  # columns of numbers and categories of all columns of words
MAX_PIXELS = 1 << 20
LARGEST_IMAGE = "1024 x 1024"
MAX_MAGNITUDE = 1e20  # root mean square of a column; whole numbers of 64 bits are below
CHANNELS = (1, 3)

Node = TypeVar("Node", bound=Hashable)


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

    @property
    def features(self) -> set[tuple[str, ...]]:
        """Its columns of numbers, and the categories of its columns of words."""
        words = {(name, value) for name, values in self.categories.items() for value in values}
        return {(name,) for name in self.numbers} | words if self.kind == "tabular" else set()


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
    def inputs(self) -> Inputs:
        """How rows become what a model takes: columns of numbers first, each kind by name."""
        if self.kind == "image":
            spec = described(self.dataset)
            scales = [self.scales[str(channel)] for channel in range(self.shape[0])]
            mean, std = zip(*scales, strict=True)
            return ImageInputs(str(spec.inputs) if spec else "image", self.shape, mean, std)
        scaled = (Number(name, *scale) for name, scale in sorted(self.scales.items()))
        words = (Category(name, values) for name, values in sorted(self.categories.items()))
        return TableInputs((*scaled, *words))

    @property
    def labels(self) -> Labels:
        """The classes, which rows give by name."""
        return Labels(self.label, self.classes)

    @property
    def data_shape(self) -> DataShape:
        """What a model must know."""
        return self.inputs.data_shape(len(self.classes))


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
    if description.kind == "image":
        _check_shape(description.shape)
    if not description.classes:
        raise ValueError("it has no classes")
    if len(description.features) > MAX_FEATURES:
        count = len(description.features)
        raise ValueError(
            f"it has {count:,} columns of numbers and categories, more than {MAX_FEATURES:,}"
        )
    _check_sums(description)
    return description


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] not in CHANNELS or min(shape) < 1:
        raise ValueError(f"images of shape {shape[:4]} are invalid")
    _, height, width = shape
    if height * width > MAX_PIXELS:
        raise ValueError(
            f"its images of {height} x {width} pixels are too large: make them smaller, at most "
            f"{MAX_PIXELS:,} pixels ({LARGEST_IMAGE})"
        )


def _check_sums(description: Description) -> None:
    """Refuse sums that no rows have, or that alone would decide everybody's scaling.

    No rows have sums of another number of values, or a negative variance.
    """
    values = description.rows
    if description.kind == "image":
        values *= description.shape[1] * description.shape[2]
        if set(description.numbers) != {str(c) for c in range(description.shape[0])}:
            raise ValueError("its sums are not those of its images' channels")
    for name, (count, total, squares) in description.numbers.items():
        spread = math.sqrt(max(squares, 0.0) / count)
        if count != values or abs(total / count) > spread * (1 + ROUNDING) + ROUNDING:
            raise ValueError("its sums are inconsistent")
        if spread > MAX_MAGNITUDE:
            raise ValueError(
                f"column '{name}' has a root mean square of {spread:.3g}, more than "
                f"{MAX_MAGNITUDE:g}: rescale it or leave it out"
            )


def excess_claims(dataset: str, descriptions: Mapping[Node, Description]) -> dict[Node, str]:
    """Return which nodes claim more classes or features than all may have together, and why.

    Those whose names most others have too come first, so that the odd ones are left out.
    """
    spec = described(dataset)
    most = spec.num_classes if spec else MAX_VALUES
    numbered = {str(number) for number in range(most)} if spec else set()
    is_numbered = [numbered.issuperset(d.classes) for d in descriptions.values()]
    classes = numbered if 2 * sum(is_numbered) > len(is_numbered) else set()
    features: set[tuple[str, ...]] = set()
    found = {}
    for node in _most_common_first(descriptions):
        claim = descriptions[node]
        all_classes, all_features = classes.union(claim.classes), features | claim.features
        for what, count, limit in (
            ("classes", len(all_classes), most),
            ("columns of numbers and categories", len(all_features), MAX_FEATURES),
        ):
            if count > limit:
                found[node] = f"with it the nodes would have {count:,} {what}, more than {limit:,}"
        if node not in found:
            classes, features = all_classes, all_features
    return found


def _most_common_first(descriptions: Mapping[Node, Description]) -> list[Node]:
    """Sort nodes by how many nodes have their names, on average; then by how few names."""
    names = {
        node: d.features | {("class", "", name) for name in d.classes}
        for node, d in descriptions.items()
    }
    shared = Counter(name for own in names.values() for name in own)

    def rank(node: Node) -> tuple[float, int]:
        own = names[node]
        return -sum(shared[name] for name in own) / max(len(own), 1), len(own)

    return sorted(descriptions, key=rank)


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
    shape = _usual_shape([d.shape for d in all_nodes]) if first.kind == "image" else first.shape
    spec = described(dataset)
    names = {name for d in all_nodes for name in d.classes}
    if spec is not None and all(name.isdecimal() for name in names):
        names |= {str(number) for number in range(spec.num_classes)}
    if len(names) < 2:
        raise UserError(
            f"All rows of all nodes have one class, '{clean_line(min(names))}', so there is "
            "nothing to learn. Check label-column."
        )
    return Schema(
        dataset=dataset,
        kind=first.kind,
        label=spec.label if spec else label,
        classes=tuple(sorted(names, key=natural)),
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


def _usual_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the number of channels and the size that most nodes have; others are converted.

    Of as many, the more channels and the smaller size.
    """
    channels, sizes = Counter(s[0] for s in shapes), Counter(s[1:] for s in shapes)
    size = max(sizes, key=lambda size: (sizes[size], -math.prod(size), size))
    return (max(channels, key=lambda count: (channels[count], count)), *size)


def _scales(
    descriptions: Sequence[Description], shape: tuple[int, ...]
) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each column over all nodes' rows.

    A node with grey images counts in the first channel alone, one with colours not among grey ones.
    """
    scales = {}
    if shape:
        descriptions = [d for d in descriptions if d.shape[0] <= shape[0]]
    names = [str(c) for c in range(shape[0])] if shape else sorted(descriptions[0].numbers)
    for name in names:
        sums = np.array([d.numbers[name] for d in descriptions if name in d.numbers])
        count, total, squares = sums.sum(axis=0)
        mean, std = mean_std(np.array(total), np.array(squares), count)
        scales[name] = (float(mean), float(std))
    return scales


def natural(name: str) -> tuple[bool, int, str]:
    """Sort numbers by their value, before words."""
    number = name.isdecimal() and len(name) < 18
    return not number, int(name) if number else 0, name


def _words(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError("names must be a list of words")
    if len(values) > MAX_VALUES:
        raise ValueError(
            f"it has {len(values):,} classes or categories ('{values[0]}', ...), more than "
            f"{MAX_VALUES:,}"
        )
    return tuple(map(_name, values))


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise ValueError(f"names must be words of at most {MAX_NAME} characters")
    if not value.isascii() and not _is_text(value):
        raise ValueError(f"the name '{value}' cannot be written as text")
    return value


def _is_text(value: str) -> bool:
    """Return whether it can be encoded: half of a character cannot."""
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def _sums(values: Any) -> tuple[float, float, float]:
    count, total, squares = (float(value) for value in values)
    if not all(math.isfinite(value) for value in (count, total, squares)) or count < 1:
        raise ValueError("its sums are not finite numbers")
    return count, total, squares
