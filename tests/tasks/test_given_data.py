"""Data of users' own in a simulation: files, folders, datasets of the hub, code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirrors import encode, grey, write_split
from PIL import Image

from fedsuite.config import parse
from fedsuite.core import plugins
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError
from tasks.dataset_cache import Dataset, is_local, load_dataset
from tasks.datasets import Columns
from tasks.own_files import content_version
from tasks.partitions import PARTITIONS

ROWS = "age,way,who,label\n" + "".join(
    f"{20 + i},{'bus' if i % 2 else 'car'},p{i % 4},{10 if i < 10 else 9}\n" for i in range(20)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """20 rows: ages 20 to 39, two ways, four owners, the classes 9 and 10."""
    path = tmp_path / "visits.csv"
    path.write_text(ROWS)
    return path


def load(path: Path, **columns: str) -> Dataset:
    return load_dataset(str(path), columns=Columns(**columns))


def test_a_file_has_numbers_categories_and_classes_and_a_tenth_is_held_out(table: Path) -> None:
    """Features by name: age, way as bus and car, who as p0 to p3: 7 of them."""
    data = load(table)
    assert data.shape.kind == "tabular" and data.x.shape == (20, 7) and data.num_train == 18
    assert data.class_names == ("9", "10")
    assert data.x[:18, 0].mean() == pytest.approx(0, abs=1e-6)
    assert data.x[:18, 0].std() == pytest.approx(1, abs=1e-5)
    assert (data.x[:, 1:3].sum(axis=1) == 1).all() and (data.x[:, 3:].sum(axis=1) == 1).all()
    assert data.owners is None and data.source == "files"


def test_columns_are_chosen(table: Path) -> None:
    data = load(table, label="way", inputs="age", owner="who")
    assert data.x.shape == (20, 1) and data.class_names == ("bus", "car")
    assert data.owners is not None and set(data.owners.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("scheme", PARTITIONS)
def test_every_partition_divides_it(
    table: Path, scheme: str, experiment: Callable[..., Path]
) -> None:
    settings = {"dataset": str(table), "owner-column": "who", "partition": scheme, "num-rounds": 1}
    settings |= {"classes-per-client": 1} if scheme == "pathological" else {}
    summary = read_document(experiment(model="auto", num_clients=2, **settings) / "summary.json")
    assert summary["status"] == "finished" and summary["model"] == "mlp"


def test_a_changed_file_is_read_again_and_the_cache_is_private(table: Path) -> None:
    assert load(table).class_names == ("9", "10")
    before = content_version(table)
    table.write_text(ROWS.replace(",9\n", ",8\n"))
    assert load(table).class_names == ("8", "10")
    assert content_version(table) != before
    folder = next(Path(os.environ["FEDSUITE_CACHE"]).glob("visits-*[!k]"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_train_and_test_are_told_apart_by_names(tmp_path: Path, table: Path) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    (folder / "train-0.csv").write_text(ROWS)
    (folder / "train-1.csv").write_text(ROWS)
    (folder / "test.csv").write_text(ROWS.replace("bus", "tram"))
    (folder / "validation.csv").write_text(ROWS)
    data = load(folder)
    assert (data.num_train, len(data.y)) == (40, 60)
    assert data.x[41, 1:3].tolist() == [0, 0], "a category of test alone is none"
    (folder / "test.csv").rename(folder / "tests.csv")
    assert load(folder).num_train == 40, "validation takes its place"
    (folder / "validation.csv").unlink()
    assert load(folder).num_train == 54, "of 60 rows a tenth"


def test_a_path_is_relative_to_data_root_if_that_is_set(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    config = parse({"dataset": "visits.csv"})
    assert config.dataset == str(table) and config.model == "auto"
    (table.parent / "else").mkdir()
    monkeypatch.chdir(table.parent / "else")
    root = str(table.parent)
    assert parse({"dataset": "visits.csv", "data-root": root}).dataset == "visits.csv"
    assert load_dataset("visits.csv", root).num_train == 18
    assert is_local("visits.csv", root)


def write_photos(folder: Path, counts: dict[str, int], size: int = 8) -> None:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((size, size), 40 * number + (100 if name == "cat" else 0), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_images_lie_in_a_folder_per_class(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", {"cat": 3, "dog": 7})
    data = load(tmp_path / "photos")
    assert data.shape.kind == "image" and data.x.shape == (10, 8, 8, 1) and data.num_train == 9
    assert data.class_names == ("cat", "dog")
    assert sorted(np.bincount(data.y)) == [3, 7]


def test_images_may_be_split_in_two_folders_unless_these_are_classes(tmp_path: Path) -> None:
    write_photos(tmp_path / "animals" / "train", {"cat": 3, "dog": 3})
    write_photos(tmp_path / "animals" / "test", {"cat": 1, "dog": 1})
    data = load(tmp_path / "animals")
    assert (data.num_train, len(data.y)) == (6, 8) and data.class_names == ("cat", "dog")
    write_photos(tmp_path / "traffic", {"train": 5, "test": 5})
    assert load(tmp_path / "traffic").class_names == ("test", "train")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"label": "price"}, "The data has no column 'price'. Its columns: age, way, who, label."),
        ({"label": "price"}, "Say by label-column which one is to be learned."),
        ({"inputs": "age,pulse"}, "The data has no column 'pulse'."),
        ({"owner": "whose"}, "The data has no column 'whose'."),
    ],
)
def test_a_column_that_is_not_there_is_named(
    table: Path, columns: dict[str, str], said: str
) -> None:
    with pytest.raises(UserError) as error:
        load(table, **columns)
    assert said in str(error.value) and str(table) in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,label\n" + "1,a\n" * 20, "column 'label' has 1 different values; classes are 2 to"),
        ("x,label\n1,a\n2,b\n", "too few rows: 2 to train on, 0 to test on"),
        ("label\n" + "a\nb\n" * 10, "There is no column beside 'label'"),
        ("x,label\n" + "1e30,a\n2,b\n" * 10, "column 'x' has numbers above 1e+20. Rescale it."),
        ("x,label\n" + ",a\n2,b\n" * 10, "rows have no value in column 'x'"),
    ],
)
def test_rows_that_cannot_be_learned_from_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "odd.csv").write_text(text)
    with pytest.raises(UserError) as error:
        load(tmp_path / "odd.csv")
    assert said in str(error.value)


def test_a_path_without_data_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="for dataset: there is no such file or folder"):
        load(tmp_path / "absent.csv")
    with pytest.raises(UserError, match="for dataset: it holds no data"):
        load(tmp_path)


def test_texts_are_numbers_of_words_and_many_words_are_no_categories(tmp_path: Path) -> None:
    (tmp_path / "said.csv").write_text("text,label\n" + "to be,a\nor not to be,b\n" * 10)
    data = load(tmp_path / "said.csv")
    assert data.shape.kind == "tokens" and data.shape.input_shape == (200,)
    assert data.shape.vocabulary == 2 + 4
    (tmp_path / "names.csv").write_text(
        "name,label\n" + "".join(f"n{i},{i % 2}\n" for i in range(1200))
    )
    with pytest.raises(UserError, match="column 'name' has 1,080 different words"):
        load(tmp_path / "names.csv")
    assert load(tmp_path / "names.csv", inputs="name").shape.kind == "tokens"


def mirror(folder: Path, label: str, names: list[str], **more: list[Any]) -> None:
    for split, count in (("train", 6), ("validation", 2)):
        columns = {"img": [grey(10 * i, 8) for i in range(count)]}
        classes = [i % 2 for i in range(count)]
        rest = {name: values[:count] for name, values in more.items()}
        write_split(folder, split, columns | {label: classes} | rest, label, names)


@pytest.mark.parametrize("place", ["owner/pets", "pets", "owner/pets/data"])
def test_a_dataset_of_the_hub_comes_from_a_mirror_with_its_columns_guessed(
    tmp_path: Path, place: str
) -> None:
    mirror(tmp_path / place, "species", ["cat", "dog"], note=["x"] * 6)
    data = load_dataset("hf:owner/pets", str(tmp_path))
    assert data.x.shape == (8, 8, 8, 1) and data.num_train == 6
    assert data.class_names == ("cat", "dog") and data.y.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert data.source == "data-root"


def test_columns_of_the_hub_are_overridden(tmp_path: Path) -> None:
    mirror(tmp_path / "pets", "species", ["cat", "dog"], note=["x", "y"] * 3)
    columns = Columns("note", "img")
    assert load_dataset("hf:owner/pets", str(tmp_path), columns=columns).class_names == ("x", "y")


def test_a_dataset_of_the_hub_that_is_nowhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"owner/pets/train-\*\.parquet"):
        load_dataset("hf:owner/pets", str(tmp_path))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write a module with a ``read``; return the name of its dataset."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it is as old as the next source
    head = "import numpy as np\nfrom tasks.datasets import DatasetSpec\n\n\n"

    def write(body: str, spec: str = "") -> str:
        source = f"def read():\n    {body}\n\n\nDATA = DatasetSpec('x', read=read, {spec})\n"
        (tmp_path / "brought.py").write_text(head + source)
        sys.modules.pop("brought", None)
        plugins.source_version.cache_clear()
        return "brought:DATA"

    yield write
    sys.modules.pop("brought", None)


def test_code_may_give_images_as_an_array(module: Callable[..., str]) -> None:
    """Image i is even grey i: their mean is 9.5, their variance (20² - 1) / 12."""
    pixels = "np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 5, 1), np.uint8)"
    rows = f"{{'image': {pixels}, 'label': np.arange(20) % 2}}"
    body = f"return dict.fromkeys(('train', 'test'), {rows})"
    data = load_dataset(module(body))
    assert data.x.shape == (40, 4, 5, 1) and data.num_train == 20 and data.source == "package"
    assert data.x[3, 0, 0, 0] == pytest.approx((3 - 9.5) / np.sqrt(399 / 12), rel=1e-5)


def test_changed_code_is_read_again(module: Callable[..., str]) -> None:
    body = "return {'train': {'x': range(20), 'label': ['a', 'b'] * 10}}"
    assert load_dataset(module(body)).class_names == ("a", "b")
    assert load_dataset(module(body.replace("'b'", "'c'"))).class_names == ("a", "c")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [1]", "read() must return tables by split, with 'train'."),
        ("return {'train': {'x': [1], 'label': [1, 2]}}", "its train rows are not a table"),
        ("return {'train': 7}", "its train rows are not a table"),
    ],
)
def test_code_that_breaks_the_contract_is_refused(
    module: Callable[..., str], body: str, said: str
) -> None:
    with pytest.raises(UserError) as error:
        load_dataset(module(body))
    assert said in str(error.value)


def test_what_a_spec_says_is_not_guessed(module: Callable[..., str]) -> None:
    body = "return {'train': {'x': range(20), 'z': range(20), 'label': [0, 1] * 10}}"
    spec = "kind='tabular', inputs=('x',), num_classes=3, default_model='mlp'"
    name = module(body, spec)
    data = load_dataset(name)
    assert data.x.shape == (20, 1) and data.class_names == ("0", "1", "2")
    assert parse({"dataset": name}).model == "mlp"
    with pytest.raises(UserError, match="needs a column 'w', which what read"):
        load_dataset(module(body, spec.replace("'x'", "'w'")))


def test_what_is_no_dataset_is_refused() -> None:
    with pytest.raises(UserError, match="it is not a DatasetSpec"):
        parse({"dataset": "math:pi"})
    with pytest.raises(UserError, match=r"Did you mean 'digits'\?.*\./photos"):
        parse({"dataset": "digit"})


def test_encoded_images_of_other_sizes_take_the_first_ones(tmp_path: Path) -> None:
    rows = {"image": [grey(9, 8), *(encode(np.zeros((5, 6, 3), np.uint8)) for _ in range(19))]}
    write_split(tmp_path / "mixed", "all", rows | {"label": [0, 1] * 10})
    assert load(tmp_path / "mixed").x.shape[1:] == (8, 8, 1)
