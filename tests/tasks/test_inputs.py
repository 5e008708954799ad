"""Fitted inputs turn rows into what a model takes, survive JSON, and refuse other rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mirrors import grey

from fedsuite.core.settings import UserError
from tasks.inputs import (
    Category,
    CharacterInputs,
    ImageInputs,
    Inputs,
    Number,
    TableInputs,
    TokenInputs,
    read_inputs,
)
from tasks.labels import Labels, read_labels

IMAGES = ImageInputs("image", (1, 2, 2), (20.0,), (10.0,))
TABLE = TableInputs((Number("age", 4.0, 2.0), Category("way", ("bus", "car")), Number("n", 0, 1)))
TOKENS = TokenInputs("text", 4, ("the", "cat"))
CHARACTERS = CharacterInputs("x", 3, "abc")
CASES: list[tuple[Inputs, dict[str, Any], Any, Any]] = [
    (IMAGES, {"image": [grey(10, 2), grey(40, 2)]}, [[-1] * 4, [2] * 4], [[10] * 4, [40] * 4]),
    (
        TABLE,
        {"n": [5, 6], "way": ["car", "boat"], "age": [8.0, 1.0], "more": [0, 0]},
        [[2, 0, 1, 5], [-1.5, 0, 0, 6]],
        [[8, 0, 1, 5], [1, 0, 0, 6]],
    ),
    (TOKENS, {"text": ["The CAT sat", "cat " * 9]}, [[2, 3, 1, 0], [3] * 4], None),
    (CHARACTERS, {"x": ["cab", "aéz"]}, [[3, 1, 2], [1, 0, 0]], None),
]


def row_name(row: int) -> str:
    return f"Row {row}"


@pytest.mark.parametrize(("inputs", "columns", "encoded", "read"), CASES)
def test_rows_become_numbers(inputs: Inputs, columns: Any, encoded: Any, read: Any) -> None:
    """Also those of a copy that went through JSON."""
    table = pa.table(columns)
    copy = read_inputs(json.loads(json.dumps(inputs.to_document())))
    assert copy == inputs and copy.data_shape(2) == inputs.data_shape(2)
    for either in (inputs, copy):
        assert either.encode(table, row_name).reshape(2, -1).tolist() == encoded
        values = either.read(table, row_name)
        assert values.reshape(2, -1).tolist() == (encoded if read is None else read)
    assert inputs.encode(table, row_name).dtype in (np.float32, np.int32, np.uint8)


REFUSED: list[tuple[Inputs, dict[str, Any], str]] = [
    (IMAGES, {"text": ["a"]}, "no column 'image'. Its columns: text"),
    (IMAGES, {"image": [7]}, "Column 'image' must hold images, not int64"),
    (IMAGES, {"image": [grey(1, 3)]}, "Row 0 has an image of 3x3 pixels, .* takes 2x2"),
    (IMAGES, {"image": [b"no"]}, "Row 0 has no image that can be decoded"),
    (TABLE, {"age": [1.0], "n": [1]}, "no column 'way'"),
    (TABLE, {"age": ["1"], "way": ["bus"], "n": [1]}, "'age' must hold numbers, not string"),
    (TABLE, {"age": [None, 1.0], "way": ["bus"] * 2, "n": [1] * 2}, "1 rows have no value in"),
    (TABLE, {"age": [np.nan], "way": ["bus"], "n": [1]}, "'age' has values that are not finite"),
    (TABLE, {"age": [1e300], "way": ["bus"], "n": [1]}, "numbers too far from those of training"),
    (TABLE, {"age": [1.0], "way": [[1]], "n": [1]}, "'way' must hold words, not list"),
    (TOKENS, {"text": [3]}, "Column 'text' must hold texts, not int64"),
    (TOKENS, {"text": ["a", None]}, "1 rows have no value in column 'text'"),
    (CHARACTERS, {"x": ["abc", "ab"]}, "Row 1 has 'ab', which has 2 characters where 3"),
]


@pytest.mark.parametrize(("inputs", "columns", "sentence"), REFUSED)
def test_other_rows_are_refused(inputs: Inputs, columns: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        inputs.encode(pa.table(columns), row_name)


def test_an_image_of_another_size_is_resized_on_demand_and_may_have_another_column() -> None:
    table = pa.table({"picture": [grey(30, 5)["bytes"]], "label": [1]})
    assert (IMAGES.encode(table, row_name, resize=True) == 1).all()


def test_categories_that_look_like_numbers_are_words() -> None:
    inputs = TableInputs((Category("zone", ("1", "2")),))
    assert inputs.encode(pa.table({"zone": [2, 7, None]}), row_name).tolist() == [
        [0, 1],
        [0, 0],
        [0, 0],
    ]


def test_labels_are_names_or_numbers() -> None:
    named, numbered = Labels("label", ("7", "9")), Labels("label", ("cat", "dog"), numbered=True)
    column = pa.chunked_array([[9, 7]])
    assert named.encode(column, row_name).tolist() == [1, 0]
    assert named.names(pa.chunked_array([[9, 8, None]])) == ["9", "8", ""]
    column = pa.chunked_array([[1, 0]])
    assert numbered.encode(column, row_name).tolist() == [1, 0]
    assert numbered.names(pa.chunked_array([[1, 5, None]])) == ["dog", "5", ""]
    assert numbered.encode(pa.chunked_array([["dog"]]), row_name).tolist() == [1]
    assert read_labels(json.loads(json.dumps(numbered.to_document()))) == numbered
    with pytest.raises(UserError, match=r"Row 1 has '2' in column 'label', .* 2 classes \(cat, do"):
        numbered.encode(pa.chunked_array([[0, 2]]), row_name)
    with pytest.raises(UserError, match="holds list<.*>, which cannot be a class"):
        named.encode(pa.chunked_array([[[1]]]), row_name)


def test_of_characters_all_others_are_one_class() -> None:
    labels = Labels("y", ("unknown", "a", "b"), others=True)
    assert labels.encode(pa.chunked_array([["b", "é", "a"]]), row_name).tolist() == [2, 0, 1]
