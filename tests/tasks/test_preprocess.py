"""From rows to arrays: blocks, gaps, labels and text at their edges."""

from __future__ import annotations

import dataclasses
import io
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from mirrors import adult_rows, encode, grey
from PIL import Image

from fedsuite.core.settings import UserError
from tasks import images, inputs
from tasks.columns import places_in
from tasks.datasets import DATASETS
from tasks.preprocess import mean_std, write_arrays
from tasks.sources import Rows, Source, _load_from_hub, _window_ends, find_source, hold_out_test


def table(columns: Any) -> pa.Table:
    return pa.table(dict(columns))


def rows(train: Any, test: Any, names: tuple[str, ...] | None = None) -> Rows:
    return Rows(table(train), table(test), names)


def written(name: str, given: Rows, folder: Path, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    spec = dataclasses.replace(DATASETS[name], **changes)
    write_arrays(spec, given, folder)
    return np.load(folder / "x.npy"), np.load(folder / "y.npy")


# The catalogue, as the papers and the hub describe the data

IMAGES = {
    "digits": ((1, 8, 8), 10, "cnn2"),
    "mnist": ((1, 28, 28), 10, "lenet"),
    "fashion-mnist": ((1, 28, 28), 10, "lenet"),
    "cifar10": ((3, 32, 32), 10, "cnn6"),
    "cifar100": ((3, 32, 32), 100, "cnn6"),
    "svhn": ((3, 32, 32), 10, "cnn6"),
    "stl10": ((3, 96, 96), 10, "cnn6"),
    "tiny-imagenet": ((3, 64, 64), 200, "resnet18"),
    "femnist": ((1, 28, 28), 62, "lenet"),
    "emnist": ((1, 28, 28), 62, "lenet"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_their_known_shape_classes_and_model(name: str) -> None:
    spec = DATASETS[name]
    assert spec.kind == "image" and spec.train_split == "train"
    assert (spec.input_shape, spec.num_classes, spec.default_model) == IMAGES[name]
    assert spec.embedded == (name == "digits") and spec.max_words == 0
    splits = {"tiny-imagenet": "valid", "femnist": None}
    assert spec.test_split == splits.get(name, "test")


def test_texts_and_tables_have_their_known_sizes() -> None:
    news, plays, adult = (DATASETS[name] for name in ("ag-news", "shakespeare", "adult"))
    assert (news.input_shape, news.num_classes, news.max_words) == ((200,), 4, 98_633)
    assert (plays.input_shape, plays.num_classes) == ((80,), 80)
    assert (len(adult.inputs), adult.num_classes, adult.input_shape) == (14, 2, ())
    assert (news.test_split, plays.test_split, adult.test_split) == ("test", None, None)
    assert not any(spec.embedded for spec in (news, plays, adult))


# Gaps


def test_words_of_a_table_may_be_missing_and_are_no_category(tmp_path: Path) -> None:
    """Workclass b and None in train: one column, zero where nothing is said."""
    train = adult_rows(workclass=["b", None])
    x, _ = written("adult", rows(train, adult_rows(workclass=[None, "b"])), tmp_path)
    assert x[:, 1].tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("name", "column", "values", "split"),
    [
        ("adult", "age", [None, 5], "train"),
        ("adult", "income", ["<=50K", None], "test"),
        ("ag-news", "text", ["a", None], "train"),
        ("shakespeare", "character_id", [None, "A"], "test"),
    ],
)
def test_other_gaps_are_refused(
    name: str, column: str, values: list[Any], split: str, tmp_path: Path
) -> None:
    tables: dict[str, Any] = {
        "adult": adult_rows(),
        "ag-news": {"text": ["a", "b"], "label": [0, 1]},
        "shakespeare": {"x": ["a" * 80] * 2, "y": ["a", "b"], "character_id": ["A", "B"]},
    }
    whole = tables[name]
    broken = whole | {column: values}
    given = rows(broken, whole) if split == "train" else rows(whole, broken)
    with pytest.raises(UserError, match=f"1 {split} rows have no value in column '{column}'"):
        written(name, given, tmp_path)


# Images


def pictures(count: int) -> dict[str, Any]:
    return {"image": [grey(value, 4) for value in range(count)], "label": [0] * count}


def test_images_are_the_same_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train 0..6: mean 3, deviation 2; so row v is (v - 3) / 2, in train and in test."""
    monkeypatch.setattr(images, "IMAGE_BLOCK", 3)
    small = {"input_shape": (1, 4, 4)}
    x, _ = written("mnist", rows(pictures(7), pictures(5)), tmp_path, **small)
    expected = [(value - 3) / 2 for value in [*range(7), *range(5)]]
    np.testing.assert_allclose(x[:, 2, 1, 0], expected, rtol=1e-6)


def test_a_wide_image_keeps_height_and_width(tmp_path: Path) -> None:
    """2 rows of 3 pixels; a larger one is made smaller."""
    wide = np.array([[0, 50, 100], [150, 200, 250]], np.uint8)
    even = np.full((4, 6), 7, np.uint8)
    given = {"image": [encode(wide), encode(even)], "label": [0, 1]}
    x, _ = written("mnist", rows(given, given), tmp_path, input_shape=(1, 2, 3))
    assert x.shape == (4, 2, 3, 1)
    scale = np.concatenate([wide.ravel(), np.full(6, 7.0)])
    np.testing.assert_allclose(x[0, :, :, 0], (wide - scale.mean()) / scale.std(), rtol=1e-5)


def test_images_may_be_plain_bytes(tmp_path: Path) -> None:
    plain = {"image": [grey(0, 4)["bytes"], grey(9, 4)["bytes"]], "label": [0, 1]}
    x, _ = written("mnist", rows(plain, plain), tmp_path, input_shape=(1, 4, 4))
    assert x[:, 0, 0, 0].tolist() == [-1, 1, -1, 1]


def test_the_row_of_a_broken_image_is_counted_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "IMAGE_BLOCK", 2)
    broken = pictures(6)
    broken["image"][5] = {"bytes": b"no", "path": None}
    with pytest.raises(UserError, match="row 5 of the test split has no image"):
        written("mnist", rows(pictures(2), broken), tmp_path, input_shape=(1, 4, 4))


def test_other_formats_are_not_tried(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("L", (4, 4)).save(file, format="bmp")
    given = {"image": [{"bytes": file.getvalue(), "path": None}], "label": [0]}
    with pytest.raises(UserError, match="no image that can be decoded"):
        written("mnist", rows(given, given), tmp_path, input_shape=(1, 4, 4))


def test_mean_and_deviation_by_hand() -> None:
    """1 and 3: sum 4, squares 10: mean 2, deviation 1. A constant 5 gets deviation 1."""
    mean, std = mean_std(np.array([4.0, 10.0]), np.array([10.0, 50.0]), 2)
    assert mean.tolist() == [2, 5] and std.tolist() == [1, 1]
    # Rounding leaves a constant 1e6 a variance of about 1e-4, which is none beside its square.
    _, std = mean_std(np.array([3e6]), np.array([3e12 + 3e-4]), 3)
    assert std.tolist() == [1.0]
    _, std = mean_std(np.array([0.0]), np.array([4e-10]), 1)
    assert std.tolist() == [2e-5]


# Labels


def test_places_are_minus_one_where_a_value_is_unknown() -> None:
    column = pa.chunked_array([["b", "a"], ["x", "b"]])
    assert places_in(column, ["a", "b"]).tolist() == [1, 0, -1, 1]


@pytest.mark.parametrize(("value", "fine"), [(1, True), (2, False), (-1, False)])
def test_class_numbers_are_below_their_number(value: int, fine: bool, tmp_path: Path) -> None:
    given = rows({"text": ["a"], "label": [0]}, {"text": ["a"], "label": [value]})
    if fine:
        assert written("ag-news", given, tmp_path, num_classes=2)[1].tolist() == [0, value]
        return
    with pytest.raises(UserError, match=r"row 0 of the test split .* none of the 2 classes \(0, 1"):
        written("ag-news", given, tmp_path, num_classes=2)


def test_a_number_between_classes_is_refused(tmp_path: Path) -> None:
    given = rows({"text": ["a"], "label": [0.0]}, {"text": ["a"], "label": [0.5]})
    with pytest.raises(UserError, match="'0.5' in column 'label'"):
        written("ag-news", given, tmp_path)


@pytest.mark.parametrize(("count", "dots"), [(10, False), (11, True)])
def test_at_most_ten_classes_are_listed(count: int, dots: bool, tmp_path: Path) -> None:
    names = tuple(f"k{number}" for number in range(count))
    given = rows({"text": ["a"], "label": [0]}, {"text": ["a"], "label": [99]}, names)
    with pytest.raises(UserError) as caught:
        written("ag-news", given, tmp_path)
    assert ("k9, ...)" in str(caught.value)) == dots and "k9" in str(caught.value)


# Texts


@pytest.mark.parametrize("block", [1, 2, 100])
def test_texts_are_the_same_whatever_the_blocks(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words a (3 times), b, c: 2, 3, 4; d is not in train."""
    monkeypatch.setattr(inputs, "ROW_BLOCK", block)
    train = {"text": ["a b", "a", "c a"], "label": [0, 1, 2]}
    test = {"text": ["d c", "b", ""], "label": [3, 0, 0]}
    x, y = written("ag-news", rows(train, test), tmp_path, input_shape=(2,))
    assert x.tolist() == [[2, 3], [2, 0], [4, 2], [1, 4], [3, 0], [0, 0]]
    assert y.tolist() == [0, 1, 2, 3, 0, 0] and x.dtype == np.int32


@pytest.mark.parametrize("block", [1, 2, 100])
def test_characters_are_the_same_whatever_the_blocks(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train has a, b, c, d, of which d is a label alone: 1 to 4."""
    monkeypatch.setattr(inputs, "ROW_BLOCK", block)
    train = {"x": ["ab", "bc", "ca"], "y": ["c", "d", "a"], "character_id": ["B", "A", "B"]}
    test = {"x": ["dd", "aé", "zb"], "y": ["b", "z", "a"], "character_id": ["A", "C", "A"]}
    x, y = written("shakespeare", rows(train, test), tmp_path, input_shape=(2,))
    assert x.tolist() == [[1, 2], [2, 3], [3, 1], [4, 4], [1, 0], [0, 2]]
    assert y.tolist() == [3, 4, 1, 2, 0, 1]
    assert np.load(tmp_path / "owners.npy").tolist() == [1, 0, 1, 0, 2, 0]


def test_a_text_of_another_length_is_named_by_its_row_across_chunks(tmp_path: Path) -> None:
    chunks = pa.chunked_array([["ab", "cd"], ["ef", "g"]])
    train = pa.table({"x": chunks, "y": ["a"] * 4, "character_id": ["A"] * 4})
    with pytest.raises(UserError, match="row 3 of the train split has 'g', which has 1 characters"):
        written("shakespeare", Rows(train, train, None), tmp_path, input_shape=(2,))


def test_a_slice_of_texts_starts_where_it_should(tmp_path: Path) -> None:
    """Arrow keeps the whole buffer of a slice and an offset into it."""
    whole = pa.table({"x": ["zz", "ab", "ba"], "y": ["z", "a", "b"], "character_id": ["A"] * 3})
    part = whole.slice(1)
    x, y = written("shakespeare", Rows(part, part, None), tmp_path, input_shape=(2,))
    assert x.tolist() == [[1, 2], [2, 1]] * 2 and y.tolist() == [1, 2, 1, 2]


# Sources


@pytest.mark.parametrize(("count", "held"), [(10, 1), (14, 1), (16, 2), (100, 10)])
def test_a_tenth_is_held_out(count: int, held: int) -> None:
    whole = table({"row": list(range(count))})
    train, test = hold_out_test(DATASETS["adult"], whole)
    assert (train.num_rows, test.num_rows) == (count - held, held)
    kept, taken = train["row"].to_pylist(), test["row"].to_pylist()
    assert kept == sorted(kept) and sorted(kept + taken) == list(range(count))


def test_windows_of_each_owner_are_cut_apart_by_hand() -> None:
    """A has 10 windows of 3: 9 train, then 2 that overlap both, so none. B, 20: 18, 2, none.

    C has 40: 36 train, 2 between, 2 test.
    """
    owners = pa.chunked_array([["A"] * 10 + ["C"] * 40, ["B"] * 20])
    train, test = _window_ends(owners, 3)
    assert (train[:10].sum(), train[10:50].sum(), train[50:].sum()) == (9, 36, 18)
    assert np.flatnonzero(test).tolist() == [48, 49]
    mixed = pa.chunked_array([["A", "B"] * 40])  # owners take turns
    train, test = _window_ends(mixed, 2)
    assert np.flatnonzero(test).tolist() == [74, 75, 76, 77, 78, 79]
    assert np.flatnonzero(~train & ~test).tolist() == [72, 73]


def test_a_source_knows_its_kind_and_what_identifies_it(tmp_path: Path) -> None:
    digits = find_source(DATASETS["digits"], "")
    assert (digits.kind, digits.identity) == ("embedded", (version("scikit-learn"),))
    hub = find_source(DATASETS["svhn"], str(tmp_path))
    assert (hub.kind, hub.identity) == ("hub", ("ufldl-stanford/svhn", "cropped_digits"))
    folder = tmp_path / "mnist"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}-0.parquet").write_bytes(b"four")
    mirror: Source = find_source(DATASETS["mnist"], str(tmp_path))
    assert mirror.kind == "data-root" and mirror.identity[0] == str(folder)
    times = [(folder / f"{split}-0.parquet").stat().st_mtime_ns for split in ("train", "test")]
    assert mirror.identity[1:] == (
        ("train-0.parquet", 4, times[0]),
        ("test-0.parquet", 4, times[1]),
    )


def test_the_hub_is_asked_for_the_datasets_own_subset_and_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    class Federated:
        def __init__(self, **options: Any) -> None:
            asked.append({key: value for key, value in options.items() if key != "preprocessor"})

        def load_split(self, name: str) -> Any:
            asked.append(name)
            return datasets.Dataset.from_dict({"image": [name], "label": [0], "other": [1]})

    monkeypatch.setattr("flwr_datasets.FederatedDataset", Federated)
    found = _load_from_hub(DATASETS["svhn"])
    options = {"dataset": "ufldl-stanford/svhn", "subset": "cropped_digits", "shuffle": False}
    assert asked == [options | {"partitioners": {"train": 1}}, "train", "test"]
    assert found.train.to_pydict() == {"image": ["train"], "label": [0]}
    assert found.test.to_pydict() == {"image": ["test"], "label": [0]}


def test_half_an_image_is_no_image(tmp_path: Path) -> None:
    """Its header can be read, and says how large it would be."""
    noise = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    half = encode(noise)["bytes"][:400]
    given = {"image": [{"bytes": half, "path": None}], "label": [0]}
    with pytest.raises(UserError, match="row 0 of the train split has no image"):
        written("mnist", rows(given, given), tmp_path)
