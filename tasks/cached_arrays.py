"""Folders of arrays in the cache: written whole, checked when opened, rebuilt if damaged.

``meta.json`` says what the arrays are, how long each file is and what a sample of its bytes sums
to. Opening checks that; of a large file it reads sixteen blocks, so a start stays fast. Folders
without these sums, of earlier versions, are checked by the form of their arrays alone.
"""

from __future__ import annotations

import json
import logging
import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedsuite.core.files import locked, replacing_folder
from fedsuite.core.settings import UserError
from tasks.shapes import DataShape

logger = logging.getLogger(__name__)
T = TypeVar("T")
META = "meta.json"
BLOCKS, BLOCK_BYTES = 16, 1 << 16
DTYPES = {"image": np.float32, "tabular": np.float32, "tokens": np.int32, "chars": np.uint8}


class Damaged(Exception):
    """A cached folder cannot be used; the message says why."""


def open_or_build(
    folder: Path, what: str, build: Callable[[Path], None], read: Callable[[Path], T]
) -> T:
    """Return what ``read`` makes of a folder; ``build`` it first if it is absent or damaged.

    Of processes that find it so at once, one builds. Nothing is written where nothing is built.
    """
    try:
        return read(folder)
    except Exception:  # whatever a damaged file makes numpy and json raise
        _make_parent(folder)
    with locked(folder.with_name(f"{folder.name}.lock"), wait=math.inf):
        try:
            return read(folder)
        except Exception as error:
            if os.path.lexists(folder):
                logger.warning("Preparing %s in %s again: damaged (%s).", what, folder, error)
            else:
                logger.info("Preparing %s in %s (first use only).", what, folder)
        _build(folder, what, build)
    try:
        return read(folder)
    except Damaged as error:
        raise UserError(
            f"The cache of {what} in '{folder}' was damaged as soon as it was written ({error}). "
            "Set FEDSUITE_CACHE to a directory on another disk."
        ) from error


def _build(folder: Path, what: str, build: Callable[[Path], None]) -> None:
    try:
        with replacing_folder(folder) as unfinished:
            build(unfinished)
    except OSError as error:
        raise UserError(
            f"The cache of {what} in '{folder}' cannot be written ({error.strerror or error}). "
            "Make room or remove that folder, or set FEDSUITE_CACHE to another directory."
        ) from error


def _make_parent(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache directory '{folder.parent}' cannot be made ({error.strerror}). "
            "Set FEDSUITE_CACHE to a directory that can be written to."
        ) from error


def write_meta(folder: Path, meta: Mapping[str, Any]) -> None:
    """Write ``meta.json``: ``meta``, and by what the files beside it are recognised as whole."""
    arrays = {
        path.name: {"bytes": path.stat().st_size, "checksum": _sample_checksum(path)}
        for path in sorted(folder.iterdir())
        if path.name != META
    }
    whole = {**meta, "arrays": arrays}
    text = json.dumps(whole | {"checksum": _checksum(whole)}, indent=1)
    (folder / META).write_text(text, encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read ``meta.json`` and check the files it names; raise :class:`Damaged` if they changed."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    if not isinstance(meta, dict):
        raise Damaged(f"{META} holds no object")
    if "checksum" in meta and meta.pop("checksum") != _checksum(meta):
        raise Damaged(f"{META} has changed")
    for name, recorded in meta.pop("arrays", {}).items():
        if (size := (folder / name).stat().st_size) != recorded["bytes"]:
            raise Damaged(f"{name} has {size:,} bytes instead of {recorded['bytes']:,}")
        if _sample_checksum(folder / name) != recorded["checksum"]:
            raise Damaged(f"{name} has changed")
    return meta


def map_array(path: Path) -> np.ndarray:
    """Map an array copy-on-write: shared between processes, and writable, as torch requires."""
    return np.asarray(np.load(path, mmap_mode="c"))


def check_form(shape: DataShape, x: np.ndarray, y: np.ndarray) -> None:
    """Raise :class:`Damaged` unless inputs and labels are such as a model of this shape takes."""
    sides = shape.input_shape
    if shape.kind == "image":
        sides = (*sides[1:], sides[0])
    if y.dtype != np.int64 or y.ndim != 1:
        raise Damaged(f"y.npy holds {y.dtype} of shape {y.shape}")
    if x.dtype != DTYPES[shape.kind] or x.shape != (len(y), *sides):
        raise Damaged(f"x.npy holds {x.dtype} of shape {x.shape} for {len(y):,} labels")
    if len(y) and not 0 <= y.min() <= y.max() < shape.num_classes:
        raise Damaged(f"y.npy has labels that are none of the {shape.num_classes} classes")


def _checksum(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


def _sample_checksum(path: Path) -> int:
    """Sum up sixteen blocks from the first to the last; a file no longer than these, entirely."""
    size = path.stat().st_size
    starts = np.linspace(0, max(size - BLOCK_BYTES, 0), BLOCKS).astype(int).tolist()
    checksum = 0
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            checksum = zlib.crc32(file.read(BLOCK_BYTES), checksum)
    return checksum
