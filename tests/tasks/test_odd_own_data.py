"""Odd tables of a node's own: learned from, or refused in a sentence that says what to do."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsuite.core.settings import UserError
from tasks.own_data import describe, form_of, write_own_arrays
from tasks.own_files import data_files, read_rows
from tasks.own_schema import Description, agree, read_description
from tasks.own_task import describe_path, own_task

TWO = ["a", "b"]


def described(table: pa.Table) -> Description:
    return describe(form_of("own", "label", table), table)


def features(table: pa.Table, folder: Path) -> list[list[float]]:
    """Return what a node alone would train on."""
    schema = agree("own", "label", {"a": read_description(described(table).to_json())})
    write_own_arrays(table, schema, folder)
    return np.load(folder / "x.npy").tolist()


# Files of rows

CSV: dict[str, tuple[bytes, str]] = {
    "latin-1 words": ("town,label\nZürich,a\n".encode("latin-1"), "'town' .* Save the file"),
    "latin-1 header": ("größe,label\n1,a\n".encode("latin-1"), "is not UTF-8. Save it as UTF-8"),
    "UTF-16": ("age,label\n1,a\n".encode("utf-16"), "is not UTF-8|cannot be read"),
    "ragged": (b"age,label\n1,a\n2,secret,c\n", r"Expected 2 columns, got 3\.$"),
    "a column twice": (b"age,age,label\n1,2,a\n", "has 2 columns 'age'. Rename or remove"),
    "empty": (b"", "cannot be read: Empty CSV file"),
    "header only": (b"age,label\n", "The data has no rows"),
    "blank lines": (b"\n\n\n", "cannot be read|no column"),
    "a label missing": (b"age,label\n1,a\n2,\n", "1 rows have no value in column 'label'"),
    "a number missing": (b"age,label\n1,a\n,b\n", "1 rows have no value in column 'age'"),
    "a whole column missing": (b"age,label\n,a\n,b\n", "2 rows have no value in column 'age'"),
    "dates": (b"day,label\n2026-01-31,a\n", "date32.*neither numbers nor words. Convert"),
}  # fmt: skip


@pytest.mark.parametrize("case", CSV)
def test_a_csv_that_cannot_be_learned_from_is_refused(case: str, tmp_path: Path) -> None:
    content, sentence = CSV[case]
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(UserError, match=sentence) as caught:
        describe_path(tmp_path / "rows.csv", "own", "label")
    assert "secret" not in str(caught.value)  # it is sent to the server


def test_a_column_may_hold_words_after_many_numbers(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age,label\n" + "1,a\n" * 500_000 + "old,b\n")
    assert describe_path(tmp_path / "rows.csv", "own", "label").categories == {"age": ("1", "old")}


def test_a_row_may_be_long(tmp_path: Path) -> None:
    """A header of 2 MB, twice as much as is read at a time unless told."""
    name = "x" * 2_000_000
    (tmp_path / "rows.csv").write_text(f"{name},label\n1,a\n2,b\n")
    assert read_rows(tmp_path / "rows.csv", "own", "label").column_names == [name, "label"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "the rows (ü).CSV"
    path.write_bytes(b"\xef\xbb\xbfage,label\n1,a\n3,b\n")
    assert describe_path(path, "own", "label").numbers == {"age": (2.0, 4.0, 10.0)}


def test_a_parquet_file_is_read_without_the_names_of_its_folders(tmp_path: Path) -> None:
    """``site=3`` would otherwise become a column."""
    (tmp_path / "site=3").mkdir()
    path = tmp_path / "site=3" / "rows.parquet"
    pq.write_table(pa.table({"age": [1], "label": ["a"]}), path)
    assert read_rows(path, "own", "label").column_names == ["age", "label"]


def test_files_of_one_folder_must_fit_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("age,label\n1,a\n")
    second.write_text("age,way,label\n2,bus,b\n")
    with pytest.raises(UserError, match=r"a\.csv' and .*b\.csv' have different.*only one.*'way'"):
        read_rows(tmp_path, "own", "label")
    second.write_text("age,label\nold,b\n")
    with pytest.raises(UserError, match=r"Column 'age' holds int64 in .*a\.csv' and string in"):
        read_rows(tmp_path, "own", "label")
    second.write_text("label,age\nb,2.5\n")
    assert read_rows(tmp_path, "own", "label")["age"].to_pylist() == [1.0, 2.5]


def test_only_visible_files_hold_rows(tmp_path: Path) -> None:
    for name in ("rows.CSV", "._rows.csv", ".hidden.parquet", "notes.txt"):
        (tmp_path / name).write_text("age,label\n1,a\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert [file.name for file in data_files(tmp_path)] == ["rows.CSV"]
    assert read_rows(tmp_path, "own", "label").num_rows == 1
    with pytest.raises(UserError, match="no such file or folder"):
        data_files(tmp_path / "self")
    (tmp_path / "folder.csv" / "0.png").touch()
    with pytest.raises(UserError, match=r"it holds \.csv files and images in subfolders"):
        data_files(tmp_path)


def test_a_link_to_nowhere_is_refused_when_described_and_when_opened(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,label\n1,a\n2,b\n")
    schema = agree("own", "label", {"a": describe_path(tmp_path, "own", "label")})
    (tmp_path / "b.csv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"b\.csv' cannot be read"):
        describe_path(tmp_path, "own", "label")
    with pytest.raises(UserError, match=r"b\.csv' cannot be read: No such file"):
        own_task(tmp_path, schema.to_json(), 0, 1, 0, 0.0)


def test_a_folder_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        data_files(tmp_path)


# Columns

NUMBERS: dict[str, pa.Array] = {
    "bools": pa.array([False, True]),
    "decimals": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.50")]),
    "int8": pa.array([-128, 127], pa.int8()),
    "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
    "half floats": pa.array(np.array([1, 2], dtype=np.float16)),
    "large": pa.array([2e19, 6e19]),
    "small": pa.array([0.0, 1e-5]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_two_numbers_become_minus_one_and_one(kind: str, tmp_path: Path) -> None:
    """Whatever the type: each is one deviation from their mean."""
    x = features(pa.table({"v": NUMBERS[kind], "label": TWO}), tmp_path)
    np.testing.assert_allclose(x, [[-1], [1]], rtol=1e-5)


def test_a_constant_becomes_zero(tmp_path: Path) -> None:
    for value in (0.0, 7.0, -1e20):
        assert features(pa.table({"v": [value] * 2, "label": TWO}), tmp_path) == [[0], [0]]


@pytest.mark.parametrize("name", ["<b>&", "\x1b[31m\x07", "x" * 200, "", "🙂", 'a"b\n,c'])
def test_a_column_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: [1.0, 3.0], "label": TWO}), path)
    description = describe_path(path, "own", "label")
    assert read_description(description.to_json()) == description
    schema = agree("own", "label", {"a": description})
    assert own_task(path, schema.to_json(), 0, 1, 0, 0.0).dataset.x.tolist() == [[-1], [1]]


def test_a_name_that_is_too_long_to_send_is_refused() -> None:
    table = pa.table({"x" * 201: [1.0, 3.0], "label": TWO})
    with pytest.raises(UserError, match="has a name of 201 characters; at most 200"):
        describe(form_of("own", "label", table), table)


def test_coded_words_are_words(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    coded = pa.array(["bus", "car"]).dictionary_encode()
    pq.write_table(pa.table({"way": coded, "label": pa.array(TWO).dictionary_encode()}), path)
    description = describe_path(path, "own", "label")
    assert description.categories == {"way": ("bus", "car")} and description.classes == ("a", "b")
    large = pa.table({"way": pa.array(["bus", None], pa.large_string()), "label": TWO})
    assert features(large, tmp_path) == [[1], [0]]


def not_utf8(rows: int) -> pa.Array:
    offsets = pa.array([0, *[1] * rows], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(b"\xff")])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "huge numbers": ({"v": [1e308, 1.0]}, "Column 'v' has numbers so large.*Rescale it"),
    "large numbers": ({"v": [1.5e20, 1.0]}, "Column 'v' has numbers so large.*exceeds 1e.20"),
    "no values at all": ({"v": pa.nulls(2)}, "2 rows have no value in column 'v'"),
    "lists": ({"v": [[1], [2]]}, "holds list<.*neither numbers nor words"),
    "structs": ({"v": [{"a": 1}, {"a": 2}]}, "holds struct<.*neither numbers nor words"),
    "structs of bytes that are none": ({"v": [{"bytes": 1}] * 2}, "'v' does not hold images"),
    "times": ({"v": pa.array([1, 2], pa.timestamp("s"))}, "neither numbers nor words"),
    "words that are not UTF-8": ({"v": not_utf8(2)}, "Column 'v' has words that are not UTF-8"),
    "labels of bytes": ({"v": [1, 2], "label": [b"\xff", b"a"]}, "cannot be a class"),
    "labels of lists": ({"v": [1, 2], "label": [[1], [2]]}, "holds list.*cannot be a class"),
    "labels without words": ({"v": [1, 2], "label": ["", "a"]}, "1 rows have no value.*'label'"),
    "labels that are not finite": ({"v": [1, 2], "label": [1.0, float("nan")]}, "not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_cannot_be_learned_from_are_refused(case: str) -> None:
    columns, sentence = REFUSED[case]
    with pytest.raises(UserError, match=sentence):
        described(pa.table({"label": TWO} | columns))


@pytest.mark.parametrize(
    ("label", "classes"),
    [
        ([1.0, 2.0], ("1", "2")),
        ([0.5, 2.0], ("0.5", "2")),
        ([True, False], ("false", "true")),
        ([datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)], ("2026-01-31", "2026-02-01")),
        ([decimal.Decimal("1.5"), decimal.Decimal("2.5")], ("1.5", "2.5")),
    ],
)
def test_classes_are_named_by_their_values(label: list[Any], classes: tuple[str, ...]) -> None:
    assert described(pa.table({"v": [1, 2], "label": label})).classes == classes


def test_one_class_at_all_nodes_is_nothing_to_learn() -> None:
    tables = [pa.table({"v": [1.0, 2.0], "label": [name] * 2}) for name in ("a", "a", "b")]
    one, same, other = map(described, tables)
    with pytest.raises(UserError, match="All rows of all nodes have one class, 'a', so there is"):
        agree("own", "label", {"1": one, "2": same})
    assert agree("own", "label", {"1": one, "2": other}).classes == ("a", "b")


def test_numbers_that_changed_since_the_start_are_refused(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": described(pa.table({"v": [1.0, 3.0], "label": TWO}))})
    far = pa.table({"v": [1e100, 3.0], "label": TWO})
    with pytest.raises(UserError, match=r"'v' has numbers too far from .*\(mean 2, deviation 1\)"):
        write_own_arrays(far, schema, tmp_path)
    words = pa.table({"v": ["x", "y"], "label": TWO})
    with pytest.raises(UserError, match="Column 'v' must hold numbers, not string"):
        write_own_arrays(words, schema, tmp_path)


def test_a_description_too_long_for_the_server_is_refused_at_the_node() -> None:
    """21 columns of 1,000 words of 200 letters: 4.3 million characters of the 4,194,304."""
    words = pa.array([f"{n:0200d}" for n in range(1000)])
    table = pa.table({f"c{n}": words for n in range(21)} | {"label": ["a", "b"] * 500})
    with pytest.raises(UserError, match="of which the server takes 4,194,304. Leave some out"):
        described(table)


def test_a_column_whose_name_cannot_be_printed_is_not_heard() -> None:
    text = described(pa.table({"v": [1.0, 2.0], "label": TWO})).to_json()
    with pytest.raises(ValueError):
        read_description(text.replace('"v"', '"\\ud800"'))


def test_of_many_columns_a_few_are_named() -> None:
    many = pa.table({f"c{n}": [1.0, 2.0] for n in range(100)})
    with pytest.raises(UserError, match=r"no column 'label'. Its columns: .*c19 and 80 more\."):
        form_of("own", "label", many)
    one = Description("tabular", 2, ("a", "b"), (), {f"c{n:02}": (2, 3, 5) for n in range(50)})
    two = Description("tabular", 2, ("a", "b"), (), {f"c{n:02}": (2, 3, 5) for n in range(49)})
    with pytest.raises(UserError, match=r"columns of numbers \['c49'\] here, \[\] at b\.$"):
        agree("own", "label", {"a": one, "b": two})
    none = Description("tabular", 2, ("a", "b"), (), {"d": (2, 3, 5)})
    with pytest.raises(UserError, match=r"'c09', '\.\.\.'\] here, \['d'\] at b\.$"):
        agree("own", "label", {"a": one, "b": none})


@pytest.mark.parametrize("columns", [50, 400])
def test_the_work_grows_with_the_columns_and_no_faster(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are listed a fixed number of times, however many columns there are."""
    listed = 0
    table = pa.table({f"c{n}": [1.0, 3.0] for n in range(columns)} | {"label": TWO})

    class Counted:
        """A table that counts how often all its names are listed."""

        num_rows = table.num_rows

        @property
        def column_names(self) -> list[str]:
            nonlocal listed
            listed += 1
            return list(table.column_names)

        def __getitem__(self, name: str) -> pa.ChunkedArray:
            return table[name]

    counted: Any = Counted()
    schema = agree("own", "label", {"a": described(counted)})
    write_own_arrays(counted, schema, tmp_path)
    assert np.load(tmp_path / "x.npy").tolist() == [[-1.0] * columns, [1.0] * columns]
    assert listed <= 5
