"""The datasets by name, and what must be known to find and read each.

Nothing heavy is imported here; :mod:`tasks.dataset_cache` loads one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsuite.core import plugins
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import invalid

HUB = "hf:"
TABLES = (".parquet", ".csv")
HINT = (
    f" A file or folder of your own is a path with a slash or its ending (./photos, visits.csv), a "
    f"dataset of the hub {HUB}OWNER/NAME, one of your own code MODULE:ATTRIBUTE."
)


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of a dataset to find, read and preprocess it.

    ``input_shape`` is (C, H, W) for images and (length,) for text; a table's is known only from
    its categories. ``num_classes`` is that of the complete dataset: what the data itself says
    goes first. ``test_split`` None means that none is known: the copy's ``test`` is taken if it has
    one, else a tenth of train is held out. ``first_classes`` keeps the rows of the first so many
    classes; 0 keeps all. Without a ``kind`` all of this is guessed from the rows.

    A dataset from outside may ``read`` its rows itself, see :func:`tasks.sources.read_rows_of`;
    ``files`` are what it reads then, so that a change of theirs is noticed.
    """

    name: str
    summary: str = ""
    hub_id: str | None = None
    hub_subset: str | None = None
    folder: str = ""
    inputs: str | tuple[str, ...] = ""
    label: str = "label"
    owner: str | None = None
    train_split: str = "train"
    test_split: str | None = None
    kind: str = ""
    num_classes: int = 0
    default_model: str = "auto"
    input_shape: tuple[int, ...] = ()
    max_words: int = 0
    embedded: bool = False
    first_classes: int = 0
    read: Callable[[], Mapping[str, Any]] | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns of a dataset that goes by a path or by its id on the hub.

    ``inputs`` are separated by commas; empty for all but the others, of which images go first.
    """

    label: str = "label"
    inputs: str = ""
    owner: str = ""


def _image(
    name: str,
    summary: str,
    hub_id: str | None,
    input_shape: tuple[int, int, int],
    num_classes: int,
    default_model: str,
    *,
    hub_subset: str | None = None,
    inputs: str = "image",
    label: str = "label",
    owner: str | None = None,
    test_split: str | None = "test",
    embedded: bool = False,
    folder: str = "",
    first_classes: int = 0,
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        summary=summary,
        hub_id=hub_id,
        hub_subset=hub_subset,
        folder=folder or name.replace("-", "_"),
        inputs=inputs,
        label=label,
        owner=owner,
        train_split="train",
        test_split=test_split,
        kind="image",
        num_classes=num_classes,
        default_model=default_model,
        input_shape=input_shape,
        embedded=embedded,
        first_classes=first_classes,
    )


_SPECS = (
    _image(
        "digits",
        "8x8 handwritten digits, shipped with scikit-learn",
        None,
        (1, 8, 8),
        10,
        "cnn2",
        embedded=True,
    ),
    _image("mnist", "28x28 handwritten digits", "ylecun/mnist", (1, 28, 28), 10, "lenet"),
    _image(
        "fashion-mnist",
        "28x28 articles of clothing",
        "zalando-datasets/fashion_mnist",
        (1, 28, 28),
        10,
        "lenet",
    ),
    _image(
        "cifar10",
        "32x32 colour photos of 10 objects",
        "uoft-cs/cifar10",
        (3, 32, 32),
        10,
        "cnn6",
        inputs="img",
    ),
    _image(
        "cifar100",
        "32x32 colour photos of 100 objects",
        "uoft-cs/cifar100",
        (3, 32, 32),
        100,
        "cnn6",
        inputs="img",
        label="fine_label",
    ),
    _image(
        "svhn",
        "32x32 colour photos of house-number digits",
        "ufldl-stanford/svhn",
        (3, 32, 32),
        10,
        "cnn6",
        hub_subset="cropped_digits",
    ),
    _image("stl10", "96x96 colour photos of 10 objects", "tanganke/stl10", (3, 96, 96), 10, "cnn6"),
    _image(
        "tiny-imagenet",
        "64x64 colour photos of 200 objects",
        "zh-plus/tiny-imagenet",
        (3, 64, 64),
        200,
        "resnet18",
        test_split="valid",
    ),
    _image(
        "femnist",
        "28x28 handwritten characters, by writer",
        "flwrlabs/femnist",
        (1, 28, 28),
        62,
        "lenet",
        label="character",
        owner="writer_id",
        test_split=None,
    ),
    _image(
        "femnist-digits",
        "28x28 handwritten digits of femnist, by writer",
        "flwrlabs/femnist",
        (1, 28, 28),
        10,
        "lenet",
        label="character",
        owner="writer_id",
        test_split=None,
        folder="femnist",
        first_classes=10,
    ),
    # No parquet copy of ByClass is known on the hub, only loading scripts that no longer run.
    _image(
        "emnist",
        "28x28 handwritten characters (EMNIST ByClass), without writers",
        None,
        (1, 28, 28),
        62,
        "lenet",
    ),
    DatasetSpec(
        name="adult",
        summary="census records, income above 50K or not",
        hub_id="scikit-learn/adult-census-income",
        hub_subset=None,
        folder="adult",
        inputs=(
            "age",
            "workclass",
            "fnlwgt",
            "education",
            "education.num",
            "marital.status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "capital.gain",
            "capital.loss",
            "hours.per.week",
            "native.country",
        ),
        label="income",
        owner=None,
        train_split="train",
        test_split=None,
        kind="tabular",
        num_classes=2,
        default_model="mlp",
    ),
    DatasetSpec(
        name="ag-news",
        summary="news texts of 4 topics, as word numbers",
        hub_id="fancyzhx/ag_news",
        hub_subset=None,
        folder="ag_news",
        inputs="text",
        label="label",
        owner=None,
        train_split="train",
        test_split="test",
        kind="tokens",
        num_classes=4,
        default_model="fasttext",
        input_shape=(200,),
        max_words=98_633,
    ),
    DatasetSpec(
        name="shakespeare",
        summary="the next character after 80 of a play, by speaker",
        hub_id="flwrlabs/shakespeare",
        hub_subset=None,
        folder="shakespeare",
        inputs="x",
        label="y",
        owner="character_id",
        train_split="train",
        test_split=None,
        kind="chars",
        num_classes=80,
        default_model="lstm",
        input_shape=(80,),
    ),
)

DATASETS: dict[str, DatasetSpec] = {spec.name: spec for spec in _SPECS}
OWN_SPEC = DatasetSpec(
    name=OWN,
    summary="the data each deployed SuperNode holds",
    hub_id=None,
    hub_subset=None,
    folder="",
    inputs="",
    label="",
    owner=None,
    train_split="train",
    test_split=None,
    kind=OWN,
    num_classes=0,
    default_model="auto",
)


def is_path(name: str) -> bool:
    """Return whether a dataset is named as a file or a folder."""
    return not name.startswith(HUB) and ("/" in name or name.lower().endswith(TABLES))


def find_dataset(name: str, columns: Columns | None = None) -> DatasetSpec:
    """Return what is known of a dataset before any row is read; refuse a name that is none."""
    if name in DATASETS:
        return DATASETS[name]
    if name == OWN:
        return OWN_SPEC
    if name.startswith(HUB) or is_path(name):
        return _given(name, columns or Columns())
    found = plugins.find("dataset", name, (*DATASETS, OWN), HINT)
    if not isinstance(found, DatasetSpec):
        raise invalid("dataset", name, "it is not a DatasetSpec of tasks.datasets.")
    if found.read is None and found.hub_id is None:
        raise invalid("dataset", name, "its DatasetSpec has neither read nor a hub_id.")
    folder = found.folder or found.name
    return dataclasses.replace(found, name=name, folder=folder)


def described(name: str) -> DatasetSpec | None:
    """Return the spec of a dataset whose columns and classes are known; None if rows decide."""
    spec = find_dataset(name)
    return spec if spec.kind and spec.num_classes else None


def _given(name: str, columns: Columns) -> DatasetSpec:
    hub_id = name.removeprefix(HUB) if name.startswith(HUB) else None
    if hub_id is not None and not all([*hub_id.partition("/")]):
        raise invalid("dataset", name, f"write {HUB}OWNER/NAME.")
    inputs = tuple(word.strip() for word in columns.inputs.split(",") if word.strip())
    return DatasetSpec(
        name,
        hub_id=hub_id,
        folder=hub_id or "",
        inputs=inputs,
        label=columns.label,
        owner=columns.owner or None,
    )
