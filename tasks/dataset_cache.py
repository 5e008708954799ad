"""Datasets as memory-mapped arrays, kept in a cache directory: :func:`load_dataset`.

On first use the rows are read from their source, turned into arrays and kept; every later use
only maps those files, so a process starts in milliseconds and the processes of one machine share
the pages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedsuite.core.files import locked, replacing_folder
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid, suggest
from tasks import preprocess, sources
from tasks.datasets import DATASETS, DatasetSpec
from tasks.shapes import DataShape

logger = logging.getLogger(__name__)


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


def load_dataset(name: str, data_root: str = "", cache_dir: Path | None = None) -> Dataset:
    """Return a dataset as memory-mapped arrays, building them on first use.

    Parameters
    ----------
    name : str
        A key of :data:`tasks.datasets.DATASETS`.
    data_root : str
        A folder of hub-style parquet folders to look into before the hub; empty for none.
    cache_dir : Path | None
        Where the arrays are kept; :func:`default_cache_dir` if None.
    """
    if name == OWN:
        raise invalid(
            "dataset",
            OWN,
            "only deployed SuperNodes have data of their own. Start them with --node-config "
            "'data-path=\"...\"' and submit the run to their SuperLink; for a simulation choose "
            f"from: {', '.join(DATASETS)}.",
        )
    if name not in DATASETS:
        raise invalid("dataset", name, suggest(name, DATASETS))
    spec = DATASETS[name]
    source = sources.find_source(spec, data_root)
    folder = (cache_dir or default_cache_dir()) / f"{name}-{_fingerprint(name, source)}"
    if not is_complete(folder):
        build_once(folder, f"dataset '{name}'", lambda place: _build(spec, source, place))
    return _open(spec, folder)


def is_local(name: str, data_root: str = "") -> bool:
    """Return whether a dataset can be opened without the network."""
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
    """Return whether arrays were built here."""
    return (folder / "meta.json").is_file()


def build_once(folder: Path, what: str, build: Callable[[Path], None]) -> None:
    """Build arrays unless another process has just done so; they appear atomically."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache directory '{folder.parent}' cannot be made ({error.strerror}). "
            "Set FEDSUITE_CACHE to a directory that can be written to."
        ) from error
    with locked(folder.with_name(f"{folder.name}.lock"), wait=math.inf):
        if is_complete(folder):
            return
        logger.info("Preparing %s in %s (first use only).", what, folder)
        with replacing_folder(folder) as unfinished:
            build(unfinished)


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
    """Map an array copy-on-write: shared between processes, and writable, as torch requires."""
    return np.asarray(np.load(path, mmap_mode="c"))
