"""The datasets by name, and what must be known to find and read each.

Nothing heavy is imported here; :mod:`tasks.dataset_cache` loads one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsuite.core.protocol import OWN


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of a dataset to find, read and preprocess it.

    ``input_shape`` is (C, H, W) for images and (length,) for text; a table's is known only from
    its categories. ``num_classes`` is that of the complete dataset: what the data itself says
    goes first. ``test_split`` None means that none is known: the copy's ``test`` is taken if it has
    one, else a tenth of train is held out. ``first_classes`` keeps the rows of the first so many
    classes; 0 keeps all.
    """

    name: str
    summary: str
    hub_id: str | None
    hub_subset: str | None
    folder: str
    inputs: str | tuple[str, ...]
    label: str
    owner: str | None
    train_split: str
    test_split: str | None
    kind: str
    num_classes: int
    default_model: str
    input_shape: tuple[int, ...] = ()
    max_words: int = 0
    embedded: bool = False
    first_classes: int = 0


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
