"""The classes of a model, and the labels of rows as their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa
from tasks.columns import is_text, places_in
from tasks.images import RowName

MAX_SHOWN = 10


@dataclass(frozen=True)
class Labels:
    """A column of labels and the classes, in the order of a model's outputs.

    Rows that are ``numbered`` give a class's number, otherwise its name; words are always names. If
    there are ``others``, the first class is whatever is none of the rest.
    """

    column: str
    classes: tuple[str, ...]
    numbered: bool = False
    others: bool = False

    def encode(self, column: pa.ChunkedArray, row_name: RowName) -> np.ndarray:
        """Return the class number of each label; refuse what is no class."""
        places = self._places(column)
        outside = (places < 0) | (places >= len(self.classes)) | (places != np.floor(places))
        if outside.any() and self.others:
            places = np.where(outside, 0, places)
        elif outside.any():
            row, names = int(np.argmax(outside)), self.classes
            some = ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
            raise UserError(
                f"{row_name(row)} has '{column[row]}' in column '{self.column}', which is none of "
                f"the {len(names)} classes ({some})."
            )
        return places.astype(np.int64)

    def names(self, column: pa.ChunkedArray) -> list[str]:
        """Return labels as names of classes; one that is no class as it is, none as ""."""
        places = self._places(column)
        known = {float(number): name for number, name in enumerate(self.classes)}
        given = ("" if label is None else str(label) for label in column.to_pylist())
        return [known.get(place, label) for place, label in zip(places, given, strict=True)]

    def to_document(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)

    def _places(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the number of each label's class, or a number that is none."""
        try:
            if is_text(column) or not self.numbered:
                return places_in(column.cast(pa.string()), self.classes)
            return column.cast(pa.float64()).fill_null(-1.0).to_numpy()
        except pa.ArrowException:
            raise UserError(
                f"Column '{self.column}' holds {column.type}, which cannot be a class. Use words "
                "or numbers."
            ) from None


def read_labels(document: Mapping[str, Any]) -> Labels:
    """Read what :meth:`Labels.to_document` wrote."""
    return Labels(**{**document, "classes": tuple(document["classes"])})
