"""The datasets by name, and :func:`load_dataset`, which gives one as memory-mapped arrays.

On first use the rows are read from their source, turned into arrays and kept in a cache
directory; every later use only maps those files, so a process starts in milliseconds and the
processes of one machine share the pages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedsuite.core.settings import UserError, suggest
from tasks import preprocess, sources
from tasks.shapes import DataShape

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of a dataset to find, read and preprocess it.

    ``input_shape`` is (C, H, W) for images and (length,) for text; a table's is known only from
    its categories. ``num_classes`` is that of the complete dataset: what the data itself says
    goes first. ``test_split`` None means there is none, and a tenth of train is held out.
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


@dataclass(frozen=True)
class Dataset:
    """All rows of a dataset, train first, ready to train on.

    ``x`` is (n, H, W, C) float32 for images, (n, features) float32 for tables, (n, length) int32
    for tokens and uint8 for characters; ``y`` is (n,) int64; ``owners`` (n,) int32.
    """

    spec: DatasetSpec
    shape: DataShape
    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray | None
    num_train: int
    class_names: tuple[str, ...]
    source: str


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
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        summary=summary,
        hub_id=hub_id,
        hub_subset=hub_subset,
        folder=name.replace("-", "_"),
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
OWN = "own"
OWN_SPEC = DatasetSpec(
    name=OWN,
    summary="what each deployed SuperNode has itself",
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


def load_dataset(name: str, data_root: str = "", cache_dir: Path | None = None) -> Dataset:
    """Return a dataset as memory-mapped arrays, building them on first use.

    Parameters
    ----------
    name : str
        A key of :data:`DATASETS`.
    data_root : str
        A folder of hub-style parquet folders to look into before the hub; empty for none.
    cache_dir : Path | None
        Where the arrays are kept; :func:`default_cache_dir` if None.
    """
    if name == OWN:
        raise UserError(
            "dataset = 'own' is what deployed SuperNodes have themselves: start them with "
            "--node-config 'data-path=\"...\"' and submit the run to their SuperLink. A simulation "
            f"needs one of: {', '.join(DATASETS)}."
        )
    if name not in DATASETS:
        raise UserError(f"dataset = '{name}' is not known. {suggest(name, DATASETS)}")
    spec = DATASETS[name]
    source = sources.find_source(spec, data_root)
    folder = (cache_dir or default_cache_dir()) / f"{name}-{_fingerprint(name, source)}"
    if not is_complete(folder):
        build_once(folder, f"dataset '{name}'", lambda place: _build(spec, source, place))
    return _open(spec, folder)


def is_local(name: str, data_root: str = "") -> bool:
    """Say whether a dataset can be opened here without asking the network."""
    if name not in DATASETS:
        return False
    source = sources.find_source(DATASETS[name], data_root)
    cached = default_cache_dir() / f"{name}-{_fingerprint(name, source)}"
    return source.kind != "hub" or is_complete(cached)


def default_cache_dir() -> Path:
    """Return ``$FEDSUITE_CACHE``, else ``fedsuite`` in the user's cache directory."""
    own = os.environ.get("FEDSUITE_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "fedsuite"


def _fingerprint(name: str, source: sources.Source) -> str:
    parts = [name, preprocess.VERSION, source.kind, source.identity]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def is_complete(folder: Path) -> bool:
    """Say whether arrays were built here."""
    return (folder / "meta.json").is_file()


def build_once(folder: Path, what: str, build: Callable[[Path], None]) -> None:
    """Build arrays unless another process has just done so; they appear all at once."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache directory '{folder.parent}' cannot be made ({error.strerror}). "
            "Set FEDSUITE_CACHE to a directory that can be written to."
        ) from error
    with FileLock(f"{folder}.lock"):
        if is_complete(folder):
            return
        logger.info("Preparing %s in %s (first use only).", what, folder)
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        for leftover in (unfinished, folder):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir()
        try:
            build(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _build(spec: DatasetSpec, source: sources.Source, folder: Path) -> None:
    rows = source.read()
    shape, class_names = preprocess.write_arrays(spec, rows, folder)
    meta = {
        "name": spec.name,
        "source": source.kind,
        "num_train": rows.train.num_rows,
        "class_names": class_names,
        "shape": asdict(shape),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def _open(spec: DatasetSpec, folder: Path) -> Dataset:
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    shape = dict(meta["shape"], input_shape=tuple(meta["shape"]["input_shape"]))
    return Dataset(
        spec=spec,
        shape=DataShape(**shape),
        x=map_array(folder / "x.npy"),
        y=map_array(folder / "y.npy"),
        owners=map_array(folder / "owners.npy") if spec.owner else None,
        num_train=meta["num_train"],
        class_names=tuple(meta["class_names"]),
        source=meta["source"],
    )


def map_array(path: Path) -> np.ndarray:
    """Map an array copy-on-write: shared between processes, and writable as torch wants it."""
    return np.asarray(np.load(path, mmap_mode="c"))
