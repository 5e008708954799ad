"""Where rows come from, and the sentences for what cannot be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from mirrors import adult_rows, grey, sample_mirror, write_split

from fedsuite.core.settings import UserError
from tasks import sources
from tasks.dataset_cache import load_dataset
from tasks.datasets import DATASETS
from tasks.sources import find_source

# The hub


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the hub's libraries write inside the test's folder, and their telemetry off."""
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


def from_folder(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Let a dataset's hub id be a local folder, which the hub's library loads the same way."""
    monkeypatch.setitem(
        DATASETS,
        name,
        dataclasses.replace(DATASETS[name], hub_id=str(folder / DATASETS[name].folder)),
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
    sample_mirror(tmp_path, "femnist")  # classes 0 to 23, ten of them digits
    from_folder(monkeypatch, "femnist-digits", tmp_path)
    for folder in ("adult", "femnist"):
        (tmp_path / folder / "test-00000-of-00001.parquet").unlink()
    for name, rows, train in (("svhn", 32, 24), ("adult", 24, 22), ("femnist-digits", 10, 9)):
        mirror = load_dataset(name, str(tmp_path), tmp_path / "cache")
        hub = load_dataset(name, "", tmp_path / "cache")
        assert (mirror.source, hub.source) == ("data-root", "hub")
        assert hub.num_train == train and len(hub.y) == rows
        assert hub.class_names == mirror.class_names
        np.testing.assert_array_equal(hub.x, mirror.x)
        np.testing.assert_array_equal(hub.y, mirror.y)


@pytest.mark.usefixtures("hub_cache")
def test_a_test_split_that_the_hub_offers_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 train rows and 8 test rows; without the latter, a tenth of 24 is held out."""
    sample_mirror(tmp_path, "adult")
    from_folder(monkeypatch, "adult", tmp_path)
    both = load_dataset("adult", "", tmp_path / "cache")
    mirror = load_dataset("adult", str(tmp_path), tmp_path / "cache")
    assert (both.source, both.num_train, len(both.y)) == ("hub", 24, 32)
    np.testing.assert_array_equal(both.x, mirror.x)
    np.testing.assert_array_equal(both.y, mirror.y)
    (tmp_path / "adult" / "test-00000-of-00001.parquet").unlink()
    alone = load_dataset("adult", "", tmp_path / "cache")
    assert (alone.num_train, len(alone.y)) == (22, 24)


def test_how_test_rows_are_found_is_part_of_what_names_a_copy() -> None:
    fixed, open_ = (find_source(DATASETS[name], "").identity for name in ("mnist", "adult"))
    assert fixed == ("ylecun/mnist", None)
    assert open_[:2] == ("scikit-learn/adult-census-income", None) and len(open_) == 3


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
        UserError, match=r"invalid value 'cifar-10' for dataset: Did you mean 'cifar10'\? .*svhn"
    ):
        load_dataset("cifar-10")


def test_data_root_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"invalid value '.*nowhere' for data-root: it is not a directory"
    ):
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
    with pytest.raises(UserError, match=r"row 1 .* which has 79 characters where 80"):
        load_dataset("shakespeare", str(tmp_path), tmp_path / "cache")


def test_too_few_rows_to_hold_any_out(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"image": [grey(0)], "character": [0], "writer_id": ["w"]}
    write_split(tmp_path / "femnist", "train", columns)
    with pytest.raises(UserError, match=r"too few rows: 1 to train on, 0 to test on"):
        load_dataset("femnist", str(tmp_path), tmp_path / "cache")


def test_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"FEDSUITE_CACHE"):
        load_dataset("digits", cache_dir=tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("'mnist' on the hub has no column 'label'."), "^'mnist' on the hub has no col"),
        (ValueError("first line.\nsecond"), r"was found neither .* as 'ylecun/mnist' \(first line"),
        (ValueError(), r"\(ValueError\)"),
    ],
)
def test_what_the_hub_raises_is_one_sentence(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence for the user stays as it is; of anything else its first line is the reason."""

    def refuse(spec: Any) -> None:
        raise error

    monkeypatch.setattr(sources, "_why_offline", lambda: "")
    monkeypatch.setattr(sources, "_load_from_hub", refuse)
    with pytest.raises(UserError, match=sentence):
        sources._read_hub(DATASETS["mnist"], None)


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_network_the_hubs_library_looks_into_its_cache_alone(
    offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def refuse(spec: Any) -> None:
        seen.append(datasets.config.HF_HUB_OFFLINE)
        raise ValueError("not there")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(sources, "_why_offline", lambda: "no network" if offline else "")
    monkeypatch.setattr(sources, "_load_from_hub", refuse)
    with pytest.raises(UserError, match="no network" if offline else "not there"):
        sources._read_hub(DATASETS["mnist"], None)
    assert seen == [offline] and datasets.config.HF_HUB_OFFLINE is False
