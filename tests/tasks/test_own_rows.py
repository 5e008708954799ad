"""Nodes' own rows at their edges: limits of descriptions, forms of files, classes of all nodes."""

from __future__ import annotations

import dataclasses
import io
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedsuite.core.settings import UserError
from tasks.own_data import describe, form_of, write_own_arrays
from tasks.own_files import data_files, read_rows
from tasks.own_schema import Description, Schema, agree, read_description
from tasks.own_task import describe_path, own_task, server_task

HONEST = {
    "kind": "tabular",
    "rows": 2,
    "classes": ["no", "yes"],
    "shape": [],
    "numbers": {"age": [2, 4, 10]},
    "categories": {"way": ["bus"]},
}


def heard(**changes: Any) -> Description:
    return read_description(json.dumps(HONEST | changes))


def picture(value: Any = 10, mode: str = "L", size: tuple[int, int] = (4, 4)) -> bytes:
    png = io.BytesIO()
    Image.new(mode, size, value).save(png, format="png")
    return png.getvalue()


def test_descriptions_at_their_limits_are_heard() -> None:
    assert heard().numbers == {"age": (2.0, 4.0, 10.0)}
    assert heard(rows=10**9, numbers={}).rows == 10**9
    assert heard(rows=1, numbers={"age": [1, 3, 9]}).rows == 1  # a single row has no variance
    assert heard(classes=["x" * 200]).classes == ("x" * 200,)
    assert heard(numbers={"age": [2, 2e20, 2e40]}).numbers["age"][1] == 2e20
    sums = {"0": [2 * 1024 * 1024, 0, 0]}
    image = heard(kind="image", shape=[1, 1024, 1024], numbers=sums, categories={})
    assert image.shape == (1, 1024, 1024)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 10**9 + 1, "numbers": {}},
        {"classes": ["x" * 201]},
        {"classes": []},
        {"numbers": {"age": [2, 0, 2.1e40]}},  # a root mean square above 1e20
        {"rows": 1, "numbers": {"age": [1, 1e150, 1e300]}},
        {"categories": {"way": ["x" * 201]}},
        {"numbers": {"age": [3, 4, 10]}},
        {"numbers": {"age": [2, 4, 7.9]}},  # mean 2, so squares are 8 at least
        {"numbers": {"age": [2, 0, -1]}, "rows": 3},
        {"numbers": {"age": [0.5, 0, 0]}},
        {"kind": "image", "shape": [1, 1025, 1024], "numbers": {"0": [2 * 1025 * 1024, 0, 0]}},
        {"kind": "image", "shape": [1, 0, 1], "numbers": {"0": [0, 0, 0]}},
        {"kind": "image", "shape": [1, 4], "numbers": {"0": [8, 0, 0]}},
        {"kind": "image", "shape": [2, 2, 2], "numbers": {"0": [8, 0, 0]}},
        {"kind": "image", "shape": [1, 2, 2], "numbers": {"0": [2, 0, 0]}},
    ],
)
def test_descriptions_beyond_their_limits_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        heard(**changes)


def test_a_description_has_a_largest_length() -> None:
    text = json.dumps(HONEST)
    assert read_description(text.ljust(1 << 22)).rows == 2
    with pytest.raises(ValueError, match="4,194,305 characters, too many"):
        read_description(text.ljust((1 << 22) + 1))


def test_a_column_too_large_is_named() -> None:
    """Two such nodes ended the run before: the sum of their squares is beyond a float."""
    sentence = "column 'age' has a root mean square of .*e.153, more than 1e.20: rescale it"
    with pytest.raises(ValueError, match=sentence):
        heard(rows=10, numbers={"age": [10, 0, 1.7e308]})


def test_the_one_class_of_all_nodes_is_shown_as_plain_text() -> None:
    with pytest.raises(UserError, match="one class, 'a b', so there is nothing to learn"):
        agree("own", "label", {"a": heard(classes=["a\nb"])})


def test_nodes_that_do_not_fit_together_are_named() -> None:
    one = heard()
    other = dataclasses.replace(one, numbers={"size": (2.0, 4.0, 10.0)})
    with pytest.raises(UserError) as caught:
        agree("own", "label", {"a": one, "b": other})
    assert str(caught.value) == (
        "The nodes' data do not fit together: columns of numbers ['age'] here, ['size'] at b."
    )
    words = dataclasses.replace(one, categories={"way": (), "sex": ()})
    with pytest.raises(UserError, match=r"columns of words \['way'\] here, \['sex', 'way'\] at b"):
        agree("own", "label", {"a": one, "b": words})
    image = Description("image", 1, ("no",), (1, 1, 1), {"0": (1.0, 1.0, 1.0)})
    with pytest.raises(UserError, match="kind of rows"):
        agree("own", "label", {"a": one, "b": image})


def test_grey_and_colour_images_agree_on_colour() -> None:
    """A grey node's one channel counts for all three; sizes are those of the first."""
    grey = Description("image", 1, ("a",), (1, 2, 2), {"0": (4.0, 8.0, 16.0)})
    sums = {str(c): (4.0, 4.0 * c, 4.0 * c * c) for c in range(3)}
    colour = Description("image", 1, ("b",), (3, 5, 5), sums)
    schema = agree("own", "label", {"a": grey, "b": colour})
    assert schema.shape == (3, 2, 2) and schema.classes == ("a", "b")


def test_a_scale_is_one_where_all_rows_are_alike() -> None:
    constant = heard(numbers={"age": [2, 10, 50]})
    assert agree("own", "label", {"a": constant}).scales == {"age": (5.0, 1.0)}


@pytest.mark.parametrize(
    ("name", "mode", "value", "shape"),
    [
        ("grey", "L", 9, (1, 2, 3)),
        ("colour", "RGB", (1, 2, 3), (3, 2, 3)),
        ("bit", "1", 1, (1, 2, 3)),
    ],
)
def test_the_first_image_decides_the_shape(
    name: str, mode: str, value: Any, shape: tuple[int, ...]
) -> None:
    table = pa.table({"image": [picture(value, mode, (3, 2))], "label": [name]})
    spec = form_of("own", "label", table)
    assert (spec.kind, spec.inputs, describe(spec, table).shape) == ("image", "image", shape)


def test_an_images_sums_are_by_channel() -> None:
    """Two images of 4 x 4: red 10 and 20, so 16 * 30 and 16 * 500 over 32 pixels."""
    images = [picture((red, 0, 1), "RGB") for red in (10, 20)]
    table = pa.table({"img": images, "label": ["a", "b"]})
    described = describe(form_of("own", "label", table), table)
    assert described.numbers == {
        "0": (32, 480.0, 8000.0), "1": (32, 0.0, 0.0), "2": (32, 32.0, 32.0),
    }  # fmt: skip
    assert (described.rows, described.shape) == (2, (3, 4, 4))


def test_what_holds_no_images_is_refused() -> None:
    table = pa.table({"image": ["word"], "label": ["a"]})
    with pytest.raises(UserError, match="Column 'image' does not hold images"):
        describe(form_of("own", "label", table), table)


def test_rows_of_another_kind_than_agreed_are_refused(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": heard()})
    table = pa.table({"image": [picture()], "label": ["no"]})
    with pytest.raises(UserError, match="rows of kind 'tabular', not 'image'"):
        write_own_arrays(table, schema, tmp_path)


def test_columns_of_images_are_known_by_name_or_content() -> None:
    by_content = pa.table({"shot": [{"bytes": picture()}], "note": ["x"], "label": ["a"]})
    assert form_of("own", "label", by_content).inputs == "shot"
    by_name = pa.table({"img": ["x"], "age": [1], "label": ["a"]})
    assert form_of("own", "label", by_name).kind == "image"
    words = pa.table({"b": ["x"], "a": [1.0], "label": ["a"]})
    assert form_of("own", "label", words).inputs == ("a", "b")


def test_as_many_short_values_as_allowed_are_told() -> None:
    def told(count: int, length: int) -> Description:
        values = [f"{number:0{length}d}" for number in range(count)]
        table = pa.table({"way": values, "label": ["a"] * count})
        return describe(form_of("own", "label", table), table)

    assert len(told(1000, 200).categories["way"]) == 1000
    for count, length in ((1001, 4), (1, 201)):
        with pytest.raises(UserError, match="distinct values, or long ones"):
            told(count, length)


def test_one_long_value_among_short_ones_is_not_told() -> None:
    table = pa.table({"way": ["bus", "x" * 201], "label": ["a", "b"]})
    with pytest.raises(UserError, match="Column 'way' has 2 distinct values, or long ones"):
        describe(form_of("own", "label", table), table)


def test_missing_words_are_no_category() -> None:
    table = pa.table({"way": ["bus", None, "?"], "label": ["a", "b", "a"]})
    assert describe(form_of("own", "label", table), table).categories == {"way": ("bus",)}


def test_a_folder_of_images_has_a_subfolder_per_class(tmp_path: Path) -> None:
    for number, (name, suffix) in enumerate([("cat", ".png"), ("dog", ".PNG"), ("cat", ".txt")]):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{number}{suffix}").write_bytes(picture(number))
    table = read_rows(tmp_path, "own", "species")
    assert table.column_names == ["image", "species"]
    assert table["species"].to_pylist() == ["cat", "dog"]
    assert table["image"][1].as_py() == {"bytes": picture(1), "path": "1.PNG"}
    named = read_rows(tmp_path, "cifar100", "ignored")
    assert named.column_names == ["img", "fine_label"]


def test_files_are_taken_in_order_and_of_one_kind(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text("age,label\n1,x\n")
    assert [file.name for file in data_files(tmp_path)] == ["a.csv", "b.csv"]
    pq.write_table(pa.table({"age": [1], "label": ["x"]}), tmp_path / "z.parquet")
    with pytest.raises(UserError, match=r"it holds \.parquet files and \.csv files, and only one"):
        data_files(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match="it holds no data"):
        data_files(tmp_path / "notes.txt")


def schema_and_file(tmp_path: Path) -> tuple[Schema, Path]:
    path = tmp_path / "rows.csv"
    path.write_text("age,label\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20)))
    return agree("own", "label", {"a": describe_path(path, "own", "label")}), path


def test_arrays_of_own_rows_are_private_and_made_anew_when_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path / "cache"))
    schema, path = schema_and_file(tmp_path)
    first = server_task(schema, str(path), "", 0, 0)
    folders = [f for f in (tmp_path / "cache").iterdir() if f.is_dir()]
    assert len(folders) == 1 and stat.S_IMODE(folders[0].stat().st_mode) == 0o700
    assert folders[0].name.startswith("own-") and len(folders[0].name) == 4 + 24
    calls: list[Path] = []

    def counted(path: Path, *rest: str) -> pa.Table:
        calls.append(path)
        return read_rows(path, *rest)

    monkeypatch.setattr("tasks.own_task.read_rows", counted)
    again = server_task(schema, str(path), "", 0, 0)
    assert not calls and np.array_equal(first.dataset.x, again.dataset.x)
    path.write_text("age,label\n5,a\n")
    changed = server_task(schema, str(path), "", 0, 0)
    assert len(calls) == 1 and len(changed.dataset.y) == 1


def test_a_servers_probe_is_taken_out_of_its_rows(tmp_path: Path) -> None:
    schema, path = schema_and_file(tmp_path)
    task = server_task(schema, str(path), "", 3, 5)
    labels = task.dataset.y
    assert np.bincount(labels[task.split.probe]).tolist() == [3, 3]
    both = np.concatenate([task.split.probe, task.split.test])
    assert sorted(both) == list(range(20))
    assert len(task.split.fingerprint) == 16
    bare = server_task(schema, "", "", 3, 5)
    assert len(bare.split.probe) == len(bare.split.test) == 0
    assert bare.split.fingerprint == task.split.fingerprint


def test_a_nodes_own_test_follows_seed_and_client(tmp_path: Path) -> None:
    schema, path = schema_and_file(tmp_path)

    def held(client: int, seed: int) -> list[int]:
        task = own_task(path, schema.to_json(), client, 2, seed, 0.3)
        assert len(task.split.train[1 - client]) == 0
        return task.split.own_test[client].tolist()

    assert len(held(0, 0)) == 6
    assert len({tuple(held(client, seed)) for client in (0, 1) for seed in (0, 1)}) == 4


def test_gaps_that_came_after_the_agreement_are_refused(tmp_path: Path) -> None:
    schema = agree("own", "label", {"a": heard(classes=["no", "yes"])})
    late = pa.table({"age": [1.0, None], "way": ["bus", "bus"], "label": ["no", "no"]})
    with pytest.raises(UserError, match="1 rows have no value in column 'age'"):
        write_own_arrays(late, schema, tmp_path)


def test_the_order_of_columns_changes_neither_the_agreement_nor_its_text() -> None:
    sums = {"age": [2, 4, 10], "size": [2, 2, 2]}
    words = {"way": ["bus"], "sex": ["f"]}
    turned = {"numbers": dict(reversed(sums.items())), "categories": dict(reversed(words.items()))}
    one, other = heard(numbers=sums, categories=words), heard(**turned)
    there, back = (agree("own", "label", {"a": a, "b": b}) for a, b in ((one, other), (other, one)))
    assert there == back and there.to_json() == back.to_json()
    reordered = dataclasses.replace(there, scales=dict(reversed(list(there.scales.items()))))
    assert reordered == there and reordered.to_json() == there.to_json()


def test_classes_are_numbers_in_their_order_and_then_words() -> None:
    nodes = {"a": heard(classes=["b", "10"]), "b": heard(classes=["2", "a"])}
    assert agree("own", "label", nodes).classes == ("2", "10", "a", "b")
