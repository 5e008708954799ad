"""Datasets: from hub-shaped rows to arrays."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirrors import adult_rows, encode, grey, sample_mirror, write_split

from fedsuite.core.settings import UserError
from tasks.dataset_cache import load_dataset
from tasks.datasets import DATASETS
from tasks.partitions import PartitionOptions
from tasks.split import partition

# The embedded dataset


def test_digits_are_all_there_and_standardised_on_train(cache: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = load_dataset("digits", cache_dir=cache)
    assert data.source == "embedded"
    assert (data.x.shape, data.x.dtype) == ((1797, 8, 8, 1), np.float32)
    assert (data.y.shape, data.y.dtype) == ((1797,), np.int64)
    assert data.shape.input_shape == (1, 8, 8) and data.shape.num_classes == 10
    assert data.owners is None
    train = data.x[: data.num_train].astype(np.float64)
    assert train.mean() == pytest.approx(0, abs=1e-5)
    assert train.std() == pytest.approx(1, abs=1e-5)
    spread = (data.x - data.x.min()) / (data.x.max() - data.x.min())
    pixels = np.rint(16 * spread).astype(np.uint8).reshape(1797, 64)
    found = Counter((p.tobytes(), int(y)) for p, y in zip(pixels, data.y, strict=True))
    wanted = Counter(
        (p.astype(np.uint8).tobytes(), int(y))
        for p, y in zip(digits.data, digits.target, strict=True)
    )
    assert found == wanted


def test_a_fifth_of_each_digit_is_test(cache: Path) -> None:
    data = load_dataset("digits", cache_dir=cache)
    whole = np.bincount(data.y)
    test = np.bincount(data.y[data.num_train :])
    assert len(data.y) - data.num_train == 360
    assert np.abs(test - whole / 5).max() <= 1


# A mirror of each dataset


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_every_dataset_loads_from_hub_shaped_parquet(
    name: str, tmp_path: Path, cache: Path
) -> None:
    spec = DATASETS[name]
    sample_mirror(tmp_path, name)
    data = load_dataset(name, str(tmp_path), cache)
    assert data.source == "data-root" and data.num_train == 24
    assert data.shape.kind == spec.kind
    assert (data.y.shape, data.y.dtype) == ((32,), np.int64)
    if spec.kind == "image":
        channels, height, width = spec.input_shape
        assert (data.x.shape, data.x.dtype) == ((32, height, width, channels), np.float32)
        assert data.shape.input_shape == spec.input_shape
        np.testing.assert_allclose(data.x[:24].mean(axis=(0, 1, 2)), 0, atol=1e-4)
        np.testing.assert_allclose(data.x[:24].std(axis=(0, 1, 2)), 1, atol=1e-4)
    elif spec.kind == "tabular":
        assert (data.x.shape, data.x.dtype) == ((32, 6 + 8 * 3), np.float32)
        assert data.shape.input_shape == (30,)
    elif spec.kind == "tokens":
        assert (data.x.shape, data.x.dtype) == ((32, 200), np.int32)
        assert data.shape.vocabulary == 24 + 2 + 2
    else:
        assert (data.x.shape, data.x.dtype) == ((32, 80), np.uint8)
        assert data.shape.vocabulary == 4 + 1
    if spec.kind == "chars":
        assert data.y.tolist() == [1, 2, 3, 4] * 8
    else:
        expected = [i % spec.num_classes for i in [*range(24), *range(8)]]
        assert data.y.tolist() == expected
        assert data.shape.num_classes == len(data.class_names) == spec.num_classes
    if spec.owner:
        assert data.owners is not None and data.owners.dtype == np.int32
        assert data.owners.tolist() == [i % 3 for i in [*range(24), *range(8)]]


def test_the_default_models_and_columns_are_declared() -> None:
    names = "digits mnist fashion-mnist cifar10 cifar100 svhn stl10 tiny-imagenet femnist "
    assert " ".join(DATASETS) == names + "femnist-digits emnist adult ag-news shakespeare"
    models = {"cnn2", "lenet", "cnn6", "resnet18", "mlp", "fasttext", "lstm"}
    assert {spec.default_model for spec in DATASETS.values()} == models
    assert DATASETS["femnist"].owner == "writer_id"
    assert DATASETS["shakespeare"].owner == "character_id"


def test_a_mirror_may_use_the_name_and_the_hub_split(tmp_path: Path, cache: Path) -> None:
    sample_mirror(tmp_path, "tiny-imagenet", test_split="valid")
    (tmp_path / "tiny_imagenet").rename(tmp_path / "tiny-imagenet")
    data = load_dataset("tiny-imagenet", str(tmp_path), cache)
    assert len(data.y) == 32 and data.num_train == 24


def test_several_shards_are_read_in_order(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "mnist"
    write_split(folder, "test", {"image": [grey(0)], "label": [0]})
    for shard, labels in enumerate([[1, 2], [3]]):
        columns: dict[str, list[Any]] = {"image": [grey(10 * v) for v in labels], "label": labels}
        write_split(folder, f"train-{shard}", columns)
    assert load_dataset("mnist", str(tmp_path), cache).y.tolist() == [1, 2, 3, 0]


# Images


def test_pixels_are_standardised_with_train_only(tmp_path: Path, cache: Path) -> None:
    """Train is half 0, half 255: mean and deviation 127.5, so 51 in test is -76.5 / 127.5."""
    write_split(tmp_path / "mnist", "train", {"image": [grey(0), grey(255)], "label": [0, 1]})
    write_split(tmp_path / "mnist", "test", {"image": [grey(51)], "label": [2]})
    data = load_dataset("mnist", str(tmp_path), cache)
    assert [float(x[5, 7, 0]) for x in data.x] == pytest.approx([-1, 1, -0.6])


def test_channels_are_standardised_apart(tmp_path: Path, cache: Path) -> None:
    """Red is 10 and 30 (mean 20, deviation 10), green constant, blue 0 and 100."""
    pixels = [np.full((32, 32, 3), rgb, dtype=np.uint8) for rgb in ([10, 7, 0], [30, 7, 100])]
    images = [encode(p, "webp") for p in pixels]
    write_split(tmp_path / "cifar10", "train", {"img": images, "label": [0, 1]})
    write_split(tmp_path / "cifar10", "test", {"img": images[1:], "label": [0]})
    data = load_dataset("cifar10", str(tmp_path), cache)
    np.testing.assert_allclose(data.x[0, 3, 4], [-1, 0, -1])
    np.testing.assert_allclose(data.x[2, 3, 4], [1, 0, 1])


def test_other_modes_and_sizes_are_converted(tmp_path: Path, cache: Path) -> None:
    images = [encode(np.full((64, 64), 0, np.uint8), "jpeg"), grey(200, size=100)]
    write_split(tmp_path / "tiny_imagenet", "train", {"image": images, "label": [0, 1]})
    write_split(tmp_path / "tiny_imagenet", "test", {"image": images, "label": [0, 1]})
    data = load_dataset("tiny-imagenet", str(tmp_path), cache)
    assert data.x.shape == (4, 64, 64, 3)
    np.testing.assert_allclose(data.x[0], -1)
    np.testing.assert_allclose(data.x[1], 1)


# Tables, words, characters


def test_table_columns_are_fitted_on_train(tmp_path: Path, cache: Path) -> None:
    """Ages 20 and 40 have mean 30 and deviation 10; a constant column is 0, not 0 / 0."""
    train = adult_rows(age=[20, 40], workclass=["?", "b"], sex=["f", "e"])
    test = adult_rows(age=[50, 30], workclass=["b", "only in test"], sex=["e", "f"])
    write_split(tmp_path / "adult", "train", train)
    write_split(tmp_path / "adult", "test", test)
    data = load_dataset("adult", str(tmp_path), cache)
    columns: list[list[float]] = [[-1, 1, 2, 0], [0, 1, 1, 0]]  # age, workclass=b
    columns += [[0] * 4, [1] * 4, [0] * 4, [1] * 4, [1] * 4, [1] * 4, [1] * 4]  # fnlwgt .. race
    columns += [[0, 1, 1, 0], [1, 0, 0, 1]]  # sex=e, sex=f
    columns += [[0] * 4, [0] * 4, [0] * 4, [1] * 4]  # gain, loss, hours, country
    np.testing.assert_allclose(data.x, np.transpose(columns), atol=1e-6)
    assert data.class_names == ("<=50K", ">50K")
    assert data.y.tolist() == [0, 1, 0, 1]


def test_words_are_numbered_from_train_by_frequency(tmp_path: Path, cache: Path) -> None:
    """In train b occurs three times, a and c twice, it's once: ids 2, 3, 4, 5."""
    train = ["B c, b! a", "a-b c it's"]
    write_split(tmp_path / "ag_news", "train", {"text": train, "label": [0, 1]})
    test = ["new a", "c " * 250]
    write_split(tmp_path / "ag_news", "test", {"text": test, "label": [2, 3]})
    data = load_dataset("ag-news", str(tmp_path), cache)
    assert data.x[0].tolist() == [2, 4, 2, 3] + [0] * 196
    assert data.x[1].tolist() == [3, 2, 4, 5] + [0] * 196
    assert data.x[2].tolist() == [1, 3] + [0] * 198
    assert data.x[3].tolist() == [4] * 200
    assert data.shape.vocabulary == 6


def test_the_vocabulary_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = dataclasses.replace(DATASETS["ag-news"], max_words=1)
    monkeypatch.setitem(DATASETS, "ag-news", few)
    write_split(tmp_path / "ag_news", "train", {"text": ["b b a"], "label": [0]})
    write_split(tmp_path / "ag_news", "test", {"text": ["a b"], "label": [0]})
    data = load_dataset("ag-news", str(tmp_path), tmp_path / "cache")
    assert data.x[:, :4].tolist() == [[2, 2, 1, 0], [1, 2, 0, 0]]
    assert data.shape.vocabulary == 3


def test_characters_are_numbered_from_train(tmp_path: Path, cache: Path) -> None:
    """Train has a, c and, only as a label, b; z and é of test are unknown, 0."""
    train = {"x": ["a" * 79 + "c"], "y": ["b"], "character_id": ["PLAY_ZOE"]}
    test = {
        "x": ["z" + "b" * 79, "é" + "a" * 79],
        "y": ["c", "z"],
        "character_id": ["PLAY_ANN"] * 2,
    }
    write_split(tmp_path / "shakespeare", "train", train)
    write_split(tmp_path / "shakespeare", "test", test)
    data = load_dataset("shakespeare", str(tmp_path), cache)
    assert data.x.tolist() == [[1] * 79 + [3], [0] + [2] * 79, [0] + [1] * 79]
    assert data.y.tolist() == [2, 3, 0]
    assert data.owners is not None and data.owners.tolist() == [1, 0, 0]
    assert data.class_names == ("unknown", "a", "b", "c")
    assert data.shape.vocabulary == data.shape.num_classes == 4


def test_class_names_are_those_of_the_data(tmp_path: Path, cache: Path) -> None:
    columns: dict[str, list[Any]] = {"image": [grey(1), grey(2)], "label": [1, 0]}
    for split in ("train", "test"):
        write_split(tmp_path / "mnist", split, columns, "label", ["zero", "one"])
    data = load_dataset("mnist", str(tmp_path), cache)
    assert data.class_names == ("zero", "one") and data.shape.num_classes == 2


def test_labels_that_are_words_are_sorted(tmp_path: Path, cache: Path) -> None:
    columns: dict[str, list[Any]] = {
        "image": [grey(1), grey(2)],
        "character": ["b", "B"],
        "writer_id": ["w", "v"],
    }
    for split in ("train", "test"):
        write_split(tmp_path / "femnist", split, columns)
    data = load_dataset("femnist", str(tmp_path), cache)
    assert data.class_names == ("B", "b")
    assert data.y.tolist() == [1, 0, 1, 0]


# A test split where there is none


def test_a_mirror_without_the_test_files_it_should_have_is_refused(
    tmp_path: Path, cache: Path
) -> None:
    write_split(tmp_path / "mnist", "train", {"image": [grey(1)] * 20, "label": [0, 1] * 10})
    with pytest.raises(UserError, match=r"no test-\*\.parquet"):
        load_dataset("mnist", str(tmp_path), cache)


def test_a_tenth_is_held_out_once_and_for_all(tmp_path: Path) -> None:
    values = list(range(0, 250, 5))
    columns: dict[str, list[Any]] = {
        "image": [grey(v) for v in values],
        "character": [i % 62 for i in range(50)],
        "writer_id": [f"w{i % 4}" for i in range(50)],
    }
    write_split(tmp_path / "femnist", "train", columns)
    first = load_dataset("femnist", str(tmp_path), tmp_path / "one")
    again = load_dataset("femnist", str(tmp_path), tmp_path / "two")
    assert first.num_train == 45 and len(first.y) == 50
    assert sorted(first.y.tolist()) == list(range(50))
    np.testing.assert_array_equal(first.y, again.y)
    assert first.y[:45].tolist() == sorted(first.y[:45])
    assert first.owners is not None
    np.testing.assert_array_equal(first.owners, first.y % 4)
    held_out = [v for i, v in enumerate(values) if i not in set(first.y[45:].tolist())]
    expected = (np.array(values)[first.y] - np.mean(held_out)) / np.std(held_out)
    np.testing.assert_allclose(first.x[:, 0, 0, 0], expected, rtol=1e-5)


def test_femnist_digits_are_the_first_ten_classes_of_femnist(tmp_path: Path, cache: Path) -> None:
    """Of 124 rows, two of each class, 20 are digits: 18 to train on, 2 held out, by writer."""
    columns: dict[str, list[Any]] = {
        "image": [grey(2 * i) for i in range(124)],
        "character": [i % 62 for i in range(124)],
        "writer_id": [f"w{i % 3}" for i in range(124)],
    }
    names = [*"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"]
    write_split(tmp_path / "femnist", "train", columns, "character", names)
    data = load_dataset("femnist-digits", str(tmp_path), cache)
    assert data.class_names == tuple("0123456789") and data.shape.num_classes == 10
    assert (data.num_train, len(data.y)) == (18, 20)
    assert np.bincount(data.y).tolist() == [2] * 10
    pixels = np.array([2 * i for i in range(124) if i % 62 < 10])
    order = np.argsort(data.x[:, 0, 0, 0])
    writers = np.array([i % 3 for i in range(124) if i % 62 < 10])
    assert data.owners is not None and data.owners[order].tolist() == writers.tolist()
    scaled = (pixels - pixels.mean()) / pixels.std()
    ours = data.x[order, 0, 0, 0]
    np.testing.assert_allclose((ours - ours.mean()) / ours.std(), scaled, atol=1e-5)
    parts = partition("natural", data.y, 3, PartitionOptions(), 0, owners=data.owners)
    assert [len(set(data.owners[part].tolist())) for part in parts] == [1, 1, 1]
    assert load_dataset("femnist", str(tmp_path), cache).shape.num_classes == 62


def test_held_out_windows_share_no_text_with_train(tmp_path: Path, cache: Path) -> None:
    """Of a speaker's 1000 windows 900 are train, 79 overlap both, and the last 21 are test."""
    text = [chr(33 + i % 89) for i in range(1080)]
    windows = ["".join(text[i : i + 80]) for i in range(1000)]
    rows = {"x": windows * 2, "y": text[80:] * 2, "character_id": ["A"] * 1000 + ["B"] * 1000}
    write_split(tmp_path / "shakespeare", "train", rows)
    data = load_dataset("shakespeare", str(tmp_path), cache)
    assert data.num_train == 1800 and len(data.y) == 1842
    first_test = [1 + (900 + 79 + i) % 89 for i in range(80)]
    assert data.x[1800].tolist() == data.x[1821].tolist() == first_test
    assert data.owners is not None
    assert data.owners[1800:].tolist() == [0] * 21 + [1] * 21
