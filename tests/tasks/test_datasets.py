"""Datasets: from hub-shaped rows of every source to arrays, the cache, and the error sentences."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedsuite.settings import UserError
from tasks import preprocess, sources
from tasks.datasets import DATASETS, DatasetSpec, default_cache_dir, load_dataset

PROJECT = Path(__file__).parents[2]
REAL = PROJECT.parent / "shared" / "data"
ADULT_NUMBERS = {
    "age",
    "fnlwgt",
    "education.num",
    "capital.gain",
    "capital.loss",
    "hours.per.week",
}


def encode(pixels: np.ndarray, format: str = "png") -> dict[str, Any]:
    """Encode an (H, W) or (H, W, 3) uint8 array as the hub does."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=format, lossless=True)
    return {"bytes": file.getvalue(), "path": None}


def grey(value: int, size: int = 28) -> dict[str, Any]:
    """Encode an even grey square."""
    return encode(np.full((size, size), value, dtype=np.uint8))


def write_split(
    folder: Path,
    split: str,
    columns: Mapping[str, Sequence[Any]],
    label: str = "",
    names: Sequence[str] = (),
) -> None:
    """Write one parquet file with the feature metadata of the hub, a ClassLabel if named."""
    folder.mkdir(parents=True, exist_ok=True)
    features: dict[str, Any] = {name: {"_type": "Value", "dtype": "string"} for name in columns}
    for name, values in columns.items():
        if isinstance(values[0], dict):
            features[name] = {"_type": "Image"}
        elif isinstance(values[0], int):
            features[name] = {"_type": "Value", "dtype": "int64"}
    if names:
        features[label] = {"_type": "ClassLabel", "names": list(names)}
    table = pa.table(dict(columns))
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = folder / f"{split}-00000-of-00001.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)


def sample_columns(spec: DatasetSpec, rows: int, seed: int) -> dict[str, Sequence[Any]]:
    """Make rows with the columns that the hub has; row i has class i mod the number of classes."""
    rng = np.random.default_rng(seed)
    classes = [i % spec.num_classes for i in range(rows)]
    columns: dict[str, Sequence[Any]] = {}
    if spec.kind == "image":
        channels, height, width = spec.input_shape
        size = (height, width) if channels == 1 else (height, width, channels)
        columns[str(spec.inputs)] = [
            encode(rng.integers(0, 256, size, dtype=np.uint8)) for _ in range(rows)
        ]
        columns[spec.label] = classes
    elif spec.kind == "tabular":
        for name in spec.inputs:
            numbers = rng.integers(0, 99, rows).tolist()
            columns[name] = numbers if name in ADULT_NUMBERS else [f"c{v % 3}" for v in numbers]
        columns[spec.label] = ["<=50K" if c == 0 else ">50K" for c in classes]
    elif spec.kind == "tokens":
        columns = {"text": [f"Word{i} and more" for i in range(rows)], "label": classes}
    else:
        columns = {"x": ["abcd" * 20] * rows, "y": ["abcd"[i % 4] for i in range(rows)]}
    if spec.owner:
        columns[spec.owner] = [f"owner{i % 3}" for i in range(rows)]
    columns["unused"] = ["other"] * rows
    return columns


def sample_mirror(root: Path, name: str, test_split: str | None = "test") -> None:
    """Write 24 train rows and, unless None, 8 test rows of a dataset."""
    spec = DATASETS[name]
    names = [f"class{i}" for i in range(spec.num_classes)] if spec.kind != "chars" else []
    names = names if spec.kind != "tabular" else []
    folder = root / spec.folder
    write_split(folder, "train", sample_columns(spec, 24, 1), spec.label, names)
    if test_split:
        write_split(folder, test_split, sample_columns(spec, 8, 2), spec.label, names)


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
    names = "digits mnist fashion-mnist cifar10 cifar100 svhn stl10 tiny-imagenet femnist emnist "
    assert " ".join(DATASETS) == names + "adult ag-news shakespeare"
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
        columns = {"image": [grey(10 * v) for v in labels], "label": labels}
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


def adult_rows(**changes: list[Any]) -> dict[str, Sequence[Any]]:
    """Two rows of the columns of adult that differ only where told."""
    rows: dict[str, Sequence[Any]] = {
        name: [5, 5] if name in ADULT_NUMBERS else ["a", "a"] for name in DATASETS["adult"].inputs
    }
    rows["income"] = ["<=50K", ">50K"]
    return rows | {name.replace("_", "."): values for name, values in changes.items()}


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
    columns = {"image": [grey(1), grey(2)], "label": [1, 0]}
    for split in ("train", "test"):
        write_split(tmp_path / "mnist", split, columns, "label", ["zero", "one"])
    data = load_dataset("mnist", str(tmp_path), cache)
    assert data.class_names == ("zero", "one") and data.shape.num_classes == 2


def test_labels_that_are_words_are_sorted(tmp_path: Path, cache: Path) -> None:
    columns = {"image": [grey(1), grey(2)], "character": ["b", "B"], "writer_id": ["w", "v"]}
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
    columns = {
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


# The hub


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the hub's libraries write inside the test's folder, and their telemetry off."""
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


def from_folder(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Let a dataset's hub id be a local folder, which the hub's library loads the same way."""
    monkeypatch.setitem(
        DATASETS, name, dataclasses.replace(DATASETS[name], hub_id=str(folder / name))
    )


@pytest.mark.usefixtures("hub_cache")
def test_the_hub_gives_the_same_arrays_as_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = "configs:\n- config_name: cropped_digits\n  data_files:\n"
    card += "".join(f"  - split: {s}\n    path: {s}-*\n" for s in ("train", "test"))
    for name in ("svhn", "adult"):
        sample_mirror(tmp_path, name)
        from_folder(monkeypatch, name, tmp_path)
    (tmp_path / "svhn" / "README.md").write_text(f"---\n{card}---\n")
    (tmp_path / "adult" / "test-00000-of-00001.parquet").unlink()
    for name, rows, train in (("svhn", 32, 24), ("adult", 24, 22)):
        mirror = load_dataset(name, str(tmp_path), tmp_path / "cache")
        hub = load_dataset(name, "", tmp_path / "cache")
        assert (mirror.source, hub.source) == ("data-root", "hub")
        assert hub.num_train == train and len(hub.y) == rows
        assert hub.class_names == mirror.class_names
        np.testing.assert_array_equal(hub.x, mirror.x)
        np.testing.assert_array_equal(hub.y, mirror.y)


@pytest.mark.usefixtures("hub_cache")
def test_a_data_root_without_the_dataset_goes_on_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_mirror(tmp_path, "mnist")
    from_folder(monkeypatch, "mnist", tmp_path)
    (tmp_path / "root" / "mnist").mkdir(parents=True)
    data = load_dataset("mnist", str(tmp_path / "root"), tmp_path / "cache")
    assert data.source == "hub" and data.num_train == 24


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("dead", ["endpoint", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_neither_mirror_nor_hub(dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = dataclasses.replace(DATASETS["svhn"], hub_id="nobody/no-such-dataset")
    monkeypatch.setitem(DATASETS, "svhn", missing)
    if dead == "endpoint":
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    else:
        monkeypatch.setenv(dead, "1")
    with pytest.raises(UserError) as caught:
        load_dataset("svhn", str(tmp_path), tmp_path / "cache")
    sentence = str(caught.value)
    reason = "no connection to http://127.0.0.1:9" if dead == "endpoint" else f"{dead} is set"
    for part in (
        "'svhn'",
        f"data-root '{tmp_path}' has no svhn/train-*.parquet",
        f"'nobody/no-such-dataset' ({reason}",
        "Set data-root to a folder that holds svhn/train-*.parquet",
        "run once on a machine that reaches the hub",
    ):
        assert part in sentence
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_dataset_that_is_not_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data-root is not set.*emnist/train-.*no copy"):
        load_dataset("emnist", cache_dir=tmp_path)


# Mistakes


def test_unknown_dataset() -> None:
    with pytest.raises(
        UserError, match=r"'cifar-10' is not known. Did you mean 'cifar10'\? .*svhn"
    ):
        load_dataset("cifar-10")


def test_data_root_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data-root = '.*nowhere' is not a directory"):
        load_dataset("mnist", str(tmp_path / "nowhere"))


def test_missing_column(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_split(tmp_path / "mnist", split, {"picture": [grey(0)], "label": [0]})
    with pytest.raises(UserError, match=r"'mnist' needs a column 'image'.*picture, label"):
        load_dataset("mnist", str(tmp_path), tmp_path / "cache")


@pytest.mark.parametrize("bad", [10, -1])
def test_label_outside_the_classes(bad: int, tmp_path: Path) -> None:
    write_split(tmp_path / "mnist", "train", {"image": [grey(0), grey(1)], "label": [0, 1]})
    write_split(tmp_path / "mnist", "test", {"image": [grey(0), grey(1)], "label": [0, bad]})
    sentence = f"row 1 of the test split has '{bad}' in column 'label'.* 10 classes"
    with pytest.raises(UserError, match=sentence):
        load_dataset("mnist", str(tmp_path), tmp_path / "cache")


def test_label_that_train_does_not_know(tmp_path: Path) -> None:
    write_split(tmp_path / "adult", "train", adult_rows())
    write_split(tmp_path / "adult", "test", adult_rows(income=["<=50K", "<=50K."]))
    with pytest.raises(UserError, match=r"row 1 of the test split has '<=50K.'.*<=50K, >50K"):
        load_dataset("adult", str(tmp_path), tmp_path / "cache")


def test_missing_label(tmp_path: Path) -> None:
    write_split(tmp_path / "mnist", "train", {"image": [grey(0), grey(1)], "label": [0, None]})
    write_split(tmp_path / "mnist", "test", {"image": [grey(0)], "label": [0]})
    with pytest.raises(UserError, match=r"1 train rows have no value in column 'label'"):
        load_dataset("mnist", str(tmp_path), tmp_path / "cache")


def test_bytes_that_are_no_image(tmp_path: Path) -> None:
    broken = {"bytes": b"GIF89a", "path": None}
    write_split(tmp_path / "mnist", "train", {"image": [grey(0), broken], "label": [0, 0]})
    write_split(tmp_path / "mnist", "test", {"image": [grey(0)], "label": [0]})
    with pytest.raises(UserError, match=r"row 1 of the train split has no image"):
        load_dataset("mnist", str(tmp_path), tmp_path / "cache")


def test_file_that_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for split in ("train", "test"):
        (tmp_path / "mnist" / f"{split}-0.parquet").write_text("version https://git-lfs.github.com")
    with pytest.raises(UserError, match=r"train-0.parquet' cannot be read as a parquet file"):
        load_dataset("mnist", str(tmp_path), tmp_path / "cache")


def test_context_of_another_length(tmp_path: Path) -> None:
    rows = {"x": ["a" * 80, "a" * 79], "y": ["a", "a"], "character_id": ["A", "A"]}
    write_split(tmp_path / "shakespeare", "train", rows)
    write_split(tmp_path / "shakespeare", "test", rows)
    with pytest.raises(UserError, match=r"row 1.* column 'x' has 79 characters where 80"):
        load_dataset("shakespeare", str(tmp_path), tmp_path / "cache")


def test_too_few_rows_to_hold_any_out(tmp_path: Path) -> None:
    columns = {"image": [grey(0)], "character": [0], "writer_id": ["w"]}
    write_split(tmp_path / "femnist", "train", columns)
    with pytest.raises(UserError, match=r"too few rows: 1 to train on, 0 to test on"):
        load_dataset("femnist", str(tmp_path), tmp_path / "cache")


def test_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"FEDSUITE_CACHE"):
        load_dataset("digits", cache_dir=tmp_path / "file" / "cache")


# The cache


def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "home")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("FEDSUITE_CACHE", raising=False)
    assert default_cache_dir() == Path("home/.cache/fedsuite")
    monkeypatch.setenv("XDG_CACHE_HOME", "shared")
    assert default_cache_dir() == Path("shared/fedsuite")
    monkeypatch.setenv("FEDSUITE_CACHE", "own")
    assert default_cache_dir() == Path("own")


def test_the_second_load_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_mirror(tmp_path, "mnist")
    first = load_dataset("mnist", str(tmp_path), tmp_path / "cache")
    monkeypatch.setattr(sources, "_read_parquet", lambda *_: pytest.fail("read again"))
    second = load_dataset("mnist", str(tmp_path), tmp_path / "cache")
    np.testing.assert_array_equal(first.x, second.x)
    assert dataclasses.replace(first, x=second.x, y=second.y) == second


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    for label in (3, 4):
        write_split(tmp_path / "mnist", "train", {"image": [grey(0)], "label": [label]})
        write_split(tmp_path / "mnist", "test", {"image": [grey(0)], "label": [label]})
        for path in (tmp_path / "mnist").iterdir():
            os.utime(path, (label, label))
        assert load_dataset("mnist", str(tmp_path), tmp_path / "cache").y.tolist() == [label] * 2


def test_arrays_can_become_tensors_and_never_change_the_cache(tmp_path: Path) -> None:
    data = load_dataset("digits", cache_dir=tmp_path)
    assert type(data.x) is np.ndarray and data.x.flags.writeable
    before = float(data.x[0, 0, 0, 0])
    data.x[0, 0, 0, 0] = 99
    assert float(load_dataset("digits", cache_dir=tmp_path).x[0, 0, 0, 0]) == before


WORKER = """
import hashlib, os, sys, time
from pathlib import Path
from tasks import datasets
folder = Path(sys.argv[1])
build = datasets._build
def counted(*arguments):
    with open(folder / "builds", "a") as file:
        file.write("x")
    time.sleep(0.3)
    build(*arguments)
datasets._build = counted
(folder / f"ready-{os.getpid()}").touch()
while not (folder / "go").exists():
    time.sleep(0.005)
data = datasets.load_dataset("mnist", str(folder / "root"), folder / "cache")
print(hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest())
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from tasks import datasets, preprocess
def die(spec, rows, folder):
    (folder / "x.npy").write_bytes(b"half")
    (folder / "meta.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
preprocess.write_arrays = die
folder = Path(sys.argv[1])
datasets.load_dataset("mnist", str(folder / "root"), folder / "cache")
"""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    """Run a script in its own process from the project's root."""
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    sample_mirror(tmp_path / "root", "mnist")
    workers = [start(WORKER, tmp_path) for _ in range(4)]
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready-*"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(set(outputs)) == 1 and len(outputs[0].strip()) == 64
    assert (tmp_path / "builds").read_text() == "x"
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_a_killed_build_is_not_mistaken_for_a_complete_one(tmp_path: Path) -> None:
    sample_mirror(tmp_path / "root", "mnist")
    assert start(KILLED, tmp_path).wait(timeout=60) == -9
    assert len(list((tmp_path / "cache").glob("*.unfinished"))) == 1
    data = load_dataset("mnist", str(tmp_path / "root"), tmp_path / "cache")
    assert data.x.shape == (32, 28, 28, 1)
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(preprocess, "write_arrays", fail)
    with pytest.raises(OSError, match=r"No space"):
        load_dataset("digits", cache_dir=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


# The real data, where this machine has it (counts and figures from the READMEs beside it)

REAL_ROWS = {
    "fashion-mnist": (60_000, 10_000, 10),
    "mnist": (60_000, 10_000, 10),
    "cifar10": (50_000, 10_000, 10),
    "adult": (32_561, 16_281, 2),
    "shakespeare": (3_318_474, 765_240, 69),
    "ag-news": (15_600, 7_600, 4),
    "tiny-imagenet": (5_000, 500, 10),
    "emnist": (20_000, 4_000, 62),
}


def real(name: str) -> pytest.MarkDecorator:
    """Skip where the real files of a dataset are absent."""
    folder = DATASETS[name].folder
    return pytest.mark.skipif(
        not (REAL / folder).is_dir(), reason=f"no shared/data/{folder} beside the project"
    )


@pytest.mark.parametrize("name", [pytest.param(name, marks=real(name)) for name in REAL_ROWS])
def test_real_rows_are_all_there(name: str, cache: Path) -> None:
    train, test, classes = REAL_ROWS[name]
    data = load_dataset(name, str(REAL), cache)
    assert data.num_train == train and len(data.x) == len(data.y) == train + test
    assert data.shape.num_classes == classes
    assert data.y.min() >= 0 and data.y.max() < classes


@real("fashion-mnist")
def test_real_fashion_mnist_pixels(cache: Path) -> None:
    """Black is -mean/std and white (1 - mean)/std of the raw pixels, 0.2860 and 0.3530."""
    data = load_dataset("fashion-mnist", str(REAL), cache)
    train = data.x[: data.num_train]
    assert float(train.mean(dtype=np.float64)) == pytest.approx(0, abs=1e-5)
    assert float(train.std(dtype=np.float64)) == pytest.approx(1, abs=1e-5)
    std = 1 / (train.max() - train.min())
    assert std == pytest.approx(0.3530, abs=5e-5)
    assert -train.min() * std == pytest.approx(0.2860, abs=5e-5)
    assert np.bincount(data.y[: data.num_train]).tolist() == [6_000] * 10


@real("cifar10")
def test_real_cifar10_channels(cache: Path) -> None:
    data = load_dataset("cifar10", str(REAL), cache)
    some = data.x[:5_000]  # enough to hold black and white in each channel
    low, high = some.min(axis=(0, 1, 2)), some.max(axis=(0, 1, 2))
    std = 255 / (high - low)
    np.testing.assert_allclose(std, [62.99321928, 62.08870764, 66.70489964], rtol=1e-5)
    np.testing.assert_allclose(-low * std, [125.30691805, 122.95039414, 113.86538318], rtol=1e-5)


@real("adult")
def test_real_adult_features(cache: Path) -> None:
    """6 numbers and 8 + 16 + 7 + 14 + 6 + 5 + 2 + 41 categories."""
    data = load_dataset("adult", str(REAL), cache)
    assert data.shape.input_shape == (105,)
    assert np.isfinite(data.x).all()
    assert np.bincount(data.y[: data.num_train]).tolist() == [24_720, 7_841]


@real("shakespeare")
def test_real_shakespeare_speakers(cache: Path) -> None:
    data = load_dataset("shakespeare", str(REAL), cache)
    assert data.owners is not None
    assert np.unique(data.owners[: data.num_train]).tolist() == list(range(820))
    table = pq.read_table(REAL / "shakespeare" / "test-00000-of-00001.parquet").slice(0, 3)
    for row, raw in enumerate(table.to_pylist(), start=data.num_train):
        text = [data.class_names[i] for i in data.x[row]]
        assert "".join(text) + data.class_names[data.y[row]] == raw["x"] + raw["y"]
