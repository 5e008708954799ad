"""Rows of nodes' own: described without showing any, agreed on, turned into the same features."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedsuite.core.settings import UserError
from tasks.own_data import describe, form_of, write_own_arrays
from tasks.own_files import read_rows
from tasks.own_schema import (
    Description,
    agree,
    excess_claims,
    read_description,
    read_schema,
)
from tasks.own_task import own_task, server_task

ONE = pa.table({"age": [1.0, 3.0], "way": ["bus", "car"], "label": ["no", "yes"]})
TWO = pa.table({"age": [5.0, 7.0], "way": ["car", "walk"], "label": ["no", "no"]})


def described(table: pa.Table, dataset: str = "own") -> Description:
    return describe(form_of(dataset, "label", table), table)


def arrays(table: pa.Table, schema: Any, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    write_own_arrays(table, schema, folder)
    return np.load(folder / "x.npy"), np.load(folder / "y.npy")


def test_a_description_holds_sums_and_categories_and_no_rows() -> None:
    """Ages 1 and 3: count 2, sum 4, sum of squares 10."""
    description = described(ONE)
    assert description.numbers == {"age": (2.0, 4.0, 10.0)}
    assert description.categories == {"way": ("bus", "car")}
    assert (description.rows, description.classes) == (2, ("no", "yes"))
    assert read_description(description.to_json()) == description


def test_what_is_agreed_is_of_all_rows_together(tmp_path: Path) -> None:
    """Ages 1, 3, 5, 7: mean 4, variance (9 + 1 + 1 + 9)/4 = 5."""
    schema = agree("own", "label", {"a": described(ONE), "b": described(TWO)})
    assert schema.scales == {"age": (4.0, pytest.approx(5**0.5))}
    assert schema.categories == {"way": ("bus", "car", "walk")}
    assert schema.classes == ("no", "yes")
    assert read_schema(schema.to_json()) == schema
    assert schema.data_shape.input_shape == (4,)
    x, y = arrays(TWO, schema, tmp_path)
    root = 5**0.5
    np.testing.assert_allclose(x, [[1 / root, 0, 1, 0], [3 / root, 0, 0, 1]], rtol=1e-6)
    assert y.tolist() == [0, 0]


def test_a_category_nobody_knew_at_the_start_is_none_of_them(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": described(ONE)})
    late = pa.table({"age": [2.0], "way": ["boat"], "label": ["yes"]})
    x, y = arrays(late, schema, tmp_path)
    np.testing.assert_allclose(x, [[0, 0, 0]])
    assert y.tolist() == [1]


def test_a_class_nobody_knew_at_the_start_is_refused(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": described(ONE)})
    late = pa.table({"age": [2.0], "way": ["bus"], "label": ["perhaps"]})
    with pytest.raises(UserError, match="'perhaps', which is none of the 2 classes"):
        write_own_arrays(late, schema, tmp_path)


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": described(ONE)})
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    turned = ONE.select(["label", "way", "age"])
    assert np.array_equal(
        arrays(ONE, schema, tmp_path / "a")[0], arrays(turned, schema, tmp_path / "b")[0]
    )


def test_numbers_are_classes_in_their_order() -> None:
    tables = [pa.table({"x": [0.0], "label": [label]}) for label in (10, 2, 1)]
    schema = agree("own", "label", {str(i): described(t) for i, t in enumerate(tables)})
    assert schema.classes == ("1", "2", "10")


def picture(grey: int, mode: str = "L", side: int = 4) -> dict[str, bytes]:
    png = io.BytesIO()
    Image.new(mode, (side, side), grey if mode == "L" else (grey,) * 3).save(png, format="png")
    return {"bytes": png.getvalue()}


def test_images_are_scaled_by_what_all_nodes_have(tmp_path: Path) -> None:
    """Grey 10 and 30: mean 20, deviation 10; so -1 and 1."""
    tables = [pa.table({"image": [picture(grey)], "label": [grey]}) for grey in (10, 30)]
    schema = agree("own", "label", {str(i): described(t) for i, t in enumerate(tables)})
    assert (schema.kind, schema.shape) == ("image", (1, 4, 4))
    for table, value, label in zip(tables, (-1, 1), (0, 1), strict=True):
        x, y = arrays(table, schema, tmp_path)
        assert x.shape == (1, 4, 4, 1)
        assert (x == value).all() and y.tolist() == [label]


def test_a_named_dataset_has_all_its_classes_and_its_size(tmp_path: Path) -> None:
    """A node may have seen only some digits, and its images may be larger."""
    table = pa.table({"image": [picture(10, side=16), picture(30, side=16)], "label": [3, 7]})
    schema = agree("digits", "label", {"a": described(table, "digits")})
    assert schema.classes == tuple("0123456789")
    x, y = arrays(table, schema, tmp_path)
    assert x.shape == (2, 8, 8, 1) and y.tolist() == [3, 7]


@pytest.mark.parametrize("kind", ["parquet", "csv", "folder of parquet", "folder of csv"])
def test_every_form_of_rows_is_read(kind: str, tmp_path: Path) -> None:
    if kind.startswith("folder"):
        for number, table in enumerate((ONE, TWO)):
            write(table, tmp_path / f"{number}.{kind.split()[-1]}")
        expected, path = [1.0, 3.0, 5.0, 7.0], tmp_path
    else:
        path = tmp_path / f"rows.{kind}"
        write(ONE, path)
        expected = [1.0, 3.0]
    assert read_rows(path, "own", "label")["age"].to_pylist() == expected


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)


WRONG: dict[str, tuple[pa.Table, str]] = {
    "no column 'label'": (pa.table({"age": [1.0]}), "own"),
    "nothing to learn from": (pa.table({"label": ["a"]}), "own"),
    "has no rows": (ONE.slice(0, 0), "own"),
    "1 rows have no value in column 'age'": (
        pa.table({"age": [1.0, None], "label": ["a", "b"]}),
        "own",
    ),
    "1 rows have no value in column 'label'": (
        pa.table({"age": [1.0, 2.0], "label": ["a", None]}),
        "own",
    ),
    "not finite": (pa.table({"age": [float("inf")], "label": ["a"]}), "own"),
    "neither numbers nor words": (pa.table({"age": [[1, 2]], "label": ["a"]}), "own"),
    "has no column 'fnlwgt'": (pa.table({"age": [1.0], "workclass": ["x"]}), "adult"),
    "Column 'label' has 2,000 distinct values": (
        pa.table({"age": np.zeros(2000), "label": np.arange(2000)}),
        "own",
    ),
    "must be images or tables": (pa.table({"text": ["a"], "label": [0]}), "ag-news"),
    "cannot be decoded|no image": (pa.table({"image": [b"no"], "label": [0]}), "digits"),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_rows_that_cannot_be_learned_from_are_refused(sentence: str) -> None:
    table, dataset = WRONG[sentence]
    with pytest.raises(UserError, match=sentence):
        described(table, dataset)


def test_a_path_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it holds no data"):
        read_rows(tmp_path, "own", "label")
    with pytest.raises(UserError, match="no such file"):
        read_rows(tmp_path / "nothing.csv", "own", "label")
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match="cannot be read"):
        read_rows(tmp_path / "bad.parquet", "own", "label")


FORGED: dict[str, Any] = {
    "no object": "[]",
    "not JSON": "{",
    "rows below one": {"rows": 0},
    "endless rows": {"rows": 10**30},
    "an unknown kind": {"kind": "film"},
    "classes that are no words": {"classes": [1]},
    "sums that are not finite": {"numbers": {"age": [1, float("nan"), 1]}},
    "sums of the wrong number": {"numbers": {"age": [1, 2]}},
    "an image the size of a town": {"kind": "image", "shape": [3, 10**9, 10**9]},
    "nested without end": "[" * 100_000,
    "an image without sums": {"kind": "image", "shape": [3, 8, 8], "numbers": {}},
    "a class that is no text": {"classes": ["\ud800"]},
    "a class without end": {"classes": ["9" * 5000]},
    "sums that no rows have": {"numbers": {"age": [2, 1e300, 1e300]}},
    "sums of other rows": {"numbers": {"age": [7, 4, 10]}},
    "endless classes": {"classes": ["x" * 100] * 20_000},
    "a thousand and one classes": {"classes": [str(number) for number in range(1001)]},
    "a column that is no text": {"numbers": {"\udcff": [2, 4, 10]}},
    "a column without end": {"categories": {"x" * 201: ["a"]}},
    "two channels": {"kind": "image", "shape": [2, 1, 1], "numbers": {"0": [2, 0, 0]}},
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_description_is_refused(case: str) -> None:
    change = FORGED[case]
    honest = json.loads(described(ONE).to_json())
    text = change if isinstance(change, str) else json.dumps(honest | change)
    with pytest.raises(ValueError):
        read_description(text)


def test_an_image_of_a_megapixel_is_the_largest() -> None:
    def image(height: int, width: int) -> str:
        sums = {"0": (height * width, 0.0, 0.0)}
        return Description("image", 1, ("a",), (1, height, width), sums).to_json()

    assert read_description(image(1024, 1024)).shape == (1, 1024, 1024)
    with pytest.raises(ValueError, match="images of 1025 x 1024 pixels are too large"):
        read_description(image(1025, 1024))


def image_of(channels: int, side: int, grey: float = 0.0) -> Description:
    """One image, the same everywhere."""
    pixels = side * side
    sums = {str(c): (pixels, pixels * grey, pixels * grey**2) for c in range(channels)}
    return Description("image", 1, ("a", "b"), (channels, side, side), sums)


def test_most_nodes_decide_the_size_and_the_channels_of_images() -> None:
    """Of as many, the smaller size and the more channels; colours do not scale grey images."""

    def shape(*images: Description) -> tuple[int, ...]:
        return agree("own", "label", {str(i): d for i, d in enumerate(images)}).shape

    small, large, coloured = image_of(1, 4, 10), image_of(1, 200), image_of(3, 4, 99)
    assert shape(large, small, small) == shape(large, small) == (1, 4, 4)
    assert shape(coloured, small, small) == (1, 4, 4) and shape(small, coloured) == (3, 4, 4)
    schema = agree("own", "label", {"a": coloured, "b": small, "c": small})
    assert schema.scales == {"0": (10.0, 1.0)}


def test_who_has_what_nobody_else_has_is_the_one_too_many() -> None:
    """998 classes and the two that the others share are 1000; one more is too many."""

    def classes(*names: str) -> Description:
        return Description("tabular", 1, names)

    usual, odd = classes("no", "yes"), [f"class {n}" for n in range(999)]
    assert excess_claims("own", {"a": classes(*odd[:998]), "b": usual, "c": usual}) == {}
    found = excess_claims("own", {"a": classes(*odd), "b": usual, "c": usual})
    assert found == {"a": "with it the nodes would have 1,001 classes, more than 1,000"}


def test_all_categories_of_all_nodes_are_bounded() -> None:
    """Two nodes share 46,000 categories; those of the third make 51,000."""

    def columns(first: int) -> Description:
        values = tuple(str(value) for value in range(1000))
        return Description(
            "tabular", 1, ("a",), (), {}, {f"c{first + n}": values for n in range(5)}
        )

    many = {f"c{n}": tuple(map(str, range(1000))) for n in range(46)}
    usual = Description("tabular", 1, ("a",), (), {}, many)
    found = excess_claims("own", {"x": columns(50), "y": usual, "z": usual})
    assert list(found) == ["x"] and "51,000 columns of numbers and categories" in found["x"]


def test_a_named_dataset_has_no_more_classes_than_it_has() -> None:
    """Digits are 0 to 9, also if the nodes that are here have only some of them."""
    some, odd = Description("image", 1, ("3", "7")), Description("image", 1, ("foo",))
    found = excess_claims("digits", {"a": odd, "b": some, "c": some})
    assert found == {"a": "with it the nodes would have 11 classes, more than 10"}


def test_tasks_of_a_node_and_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write(pa.concat_tables([ONE, TWO]), path)
    schema = agree("own", "label", {"a": described(ONE), "b": described(TWO)})
    mine = own_task(path, schema.to_json(), 1, 3, 0, 0.25)
    assert [len(rows) for rows in mine.split.train] == [0, 3, 0]
    assert [len(rows) for rows in mine.split.own_test] == [0, 1, 0]
    x, _ = mine.rows(mine.split.train[1])
    assert tuple(x.shape) == (3, 4)
    bare = server_task(schema, "", "", 0, 0)
    assert len(bare.split.test) == 0
    with_rows = server_task(schema, str(path), "", 0, 0)
    assert len(with_rows.split.test) == 4
    assert bare.split.fingerprint == with_rows.split.fingerprint
