"""Datasets as memory-mapped arrays, kept in a cache directory: :func:`load_dataset`.

On first use the rows are read from their source, turned into arrays and kept; every later use
only maps those files, so a process starts in milliseconds and the processes of one machine share
the pages.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedsuite.core.plugins import short_name
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import invalid
from tasks import preprocess, sources
from tasks.cached_arrays import (
    META,
    Damaged,
    check_form,
    map_array,
    open_or_build,
    read_meta,
    write_meta,
)
from tasks.datasets import DATASETS, Columns, DatasetSpec, find_dataset
from tasks.guessing import complete
from tasks.inputs import Inputs, read_inputs
from tasks.labels import Labels, read_labels
from tasks.shapes import DataShape

INPUTS = "inputs.json"


@dataclass(frozen=True)
class Dataset:
    """All rows of a dataset, train first, ready to train on.

    ``x`` is (n, H, W, C) float32 for images, (n, features) float32 for tables, (n, length) int32
    for tokens and uint8 for characters; ``y`` is (n,) int64; ``owners`` (n,) int32. ``inputs`` and
    ``labels`` say how rows became ``x`` and ``y``.
    """

    spec: DatasetSpec
    shape: DataShape
    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray | None
    num_train: int
    inputs: Inputs
    labels: Labels
    source: str

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in order."""
        return self.labels.classes


def load_dataset(
    name: str,
    data_root: str = "",
    cache_dir: Path | None = None,
    columns: Columns | None = None,
) -> Dataset:
    """Return a dataset as memory-mapped arrays, building them on first use.

    Parameters
    ----------
    name : str
        A dataset, see :func:`tasks.datasets.find_dataset`.
    data_root : str
        A folder of hub-style parquet folders to look into before the hub; empty for none.
    cache_dir : Path | None
        Where the arrays are kept; :func:`default_cache_dir` if None.
    columns : Columns | None
        The columns of a dataset that goes by a path or by its id on the hub.
    """
    if name == OWN:
        raise invalid(
            "dataset",
            OWN,
            "only deployed SuperNodes have data of their own. Start them with --node-config "
            "'data-path=\"...\"' and submit the run to their SuperLink; for a simulation choose "
            f"from: {', '.join(DATASETS)}.",
        )
    spec = find_dataset(name, columns)
    source = sources.find_source(spec, data_root)
    folder = _folder(name, source, cache_dir or default_cache_dir())
    return open_or_build(
        folder,
        f"dataset '{name}'",
        lambda place: _build(spec, source, place),
        lambda place: _open(spec, place),
    )


def is_local(name: str, data_root: str = "", columns: Columns | None = None) -> bool:
    """Return whether a dataset can be opened without the network."""
    if name == OWN:
        return False
    spec = find_dataset(name, columns)
    source = sources.find_source(spec, data_root)
    if source.kind != "hub":
        return True
    try:
        _open(spec, _folder(name, source, default_cache_dir()))
    except Exception:  # whatever a missing or damaged file makes numpy and json raise
        return False
    return True


def default_cache_dir() -> Path:
    """Return ``$FEDSUITE_CACHE``, else ``fedsuite`` in the user's cache directory."""
    own = os.environ.get("FEDSUITE_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "fedsuite"


def _folder(name: str, source: sources.Source, cache_dir: Path) -> Path:
    parts = [name, preprocess.VERSION, source.kind, source.identity]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_dir / f"{short_name(name)}-{fingerprint}"


def _build(spec: DatasetSpec, source: sources.Source, folder: Path) -> None:
    if source.kind == "files":
        folder.chmod(0o700)
    spec, rows = complete(spec, source.read())
    inputs, labels = preprocess.write_arrays(spec, rows, folder)
    document = {"inputs": inputs.to_document(), "labels": labels.to_document()}
    (folder / INPUTS).write_text(json.dumps(document), encoding="utf-8")
    meta = {
        "name": spec.name,
        "source": source.kind,
        "num_train": rows.train.num_rows,
        "class_names": labels.classes,
        "shape": asdict(inputs.data_shape(len(labels.classes))),
    }
    write_meta(folder, meta)


def _open(spec: DatasetSpec, folder: Path) -> Dataset:
    meta = read_meta(folder)
    if not (folder / INPUTS).exists():
        raise Damaged(f"an earlier version made it, without {INPUTS}")
    document = json.loads((folder / INPUTS).read_text(encoding="utf-8"))
    shape = DataShape(**dict(meta["shape"], input_shape=tuple(meta["shape"]["input_shape"])))
    dataset = Dataset(
        spec=spec,
        shape=shape,
        x=map_array(folder / "x.npy"),
        y=map_array(folder / "y.npy"),
        owners=map_array(folder / "owners.npy") if spec.owner else None,
        num_train=meta["num_train"],
        inputs=read_inputs(document["inputs"]),
        labels=read_labels(document["labels"]),
        source=meta["source"],
    )
    _check(dataset, tuple(meta["class_names"]))
    return dataset


def _check(dataset: Dataset, names: tuple[str, ...]) -> None:
    """Raise :class:`Damaged` where the parts of a dataset do not fit together."""
    check_form(dataset.shape, dataset.x, dataset.y)
    rows, owners = len(dataset.y), dataset.owners
    if owners is not None and (owners.dtype != np.int32 or owners.shape != (rows,)):
        raise Damaged(f"owners.npy holds {owners.dtype} of shape {owners.shape}")
    if not isinstance(dataset.num_train, int) or not 0 < dataset.num_train < rows:
        raise Damaged(f"{META} counts {dataset.num_train} training rows of {rows:,}")
    if len(names) != dataset.shape.num_classes or not all(isinstance(n, str) for n in names):
        raise Damaged(f"{META} does not name the {dataset.shape.num_classes} classes")
    if names != dataset.class_names or dataset.inputs.data_shape(len(names)) != dataset.shape:
        raise Damaged(f"{INPUTS} does not fit {META}")
