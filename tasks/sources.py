"""Where the raw rows of a dataset come from: files, code, a mirror folder or the hub.

Every source gives the same form, :class:`Rows`: one arrow table per split, images still encoded.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedsuite.core import seeds
from fedsuite.core.files import absolute_path
from fedsuite.core.plugins import reference_of, short_name, source_version
from fedsuite.core.settings import UserError, invalid
from tasks.arrow import pa, pc, pq
from tasks.datasets import DatasetSpec, is_path
from tasks.own_files import TESTS, files_identity, read_files, split_files

SPLIT_SEED = 0
HUB_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Rows:
    """The raw rows of both splits, and the class names where the data carries them."""

    train: pa.Table
    test: pa.Table
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Source:
    """One place a dataset comes from; ``identity`` changes whenever its rows may have changed."""

    kind: str
    identity: tuple[Any, ...]
    read: Callable[[], Rows]


def find_source(spec: DatasetSpec, data_root: str) -> Source:
    """Choose the source of a dataset without reading any row: its own, a mirror, then the hub."""
    root = Path(data_root).expanduser().resolve() if data_root else None
    if root is not None and not root.is_dir():
        raise invalid("data-root", data_root, "it is not a directory.")
    if spec.embedded:
        return Source("embedded", (version("scikit-learn"),), lambda: _read_digits(spec))
    if is_path(spec.name):
        return _given_files(spec, absolute_path(str(Path(root or "", spec.name))))
    if spec.read is not None:
        return Source("package", _code_identity(spec), lambda: read_rows_of(spec))
    folders = [root / spec.folder, root / short_name(spec.name)] if root is not None else []
    for folder in (place for name in folders for place in (name, name / "data")):
        if _split_files(folder, "train", spec.train_split):
            return _mirror(spec, folder)
    return Source("hub", _hub_identity(spec), lambda: _read_hub(spec, root))


def _given_files(spec: DatasetSpec, path: Path) -> Source:
    train, test = split_files(path, "dataset")
    identity = (*files_identity(train), "test", *files_identity(test), *_asked_columns(spec))

    def read() -> Rows:
        tables = [read_files(files, spec.name, spec.label) for files in (train, test) if files]
        return _as_rows(spec, tables[0], tables[1] if test else None)

    return Source("files", identity, read)


def _asked_columns(spec: DatasetSpec) -> tuple[Any, ...]:
    """Return what the user said of the columns of a dataset that is not described."""
    return () if spec.kind else (spec.label, spec.inputs, spec.owner)


def _code_identity(spec: DatasetSpec) -> tuple[Any, ...]:
    reference = reference_of("dataset", spec.name)
    return (reference, source_version(reference), *files_identity(list(map(Path, spec.files))))


def read_rows_of(spec: DatasetSpec) -> Rows:
    """Call the ``read`` of a dataset from outside and check what it returns.

    That is a table as ``train`` and, unless a tenth of it is to be held out, one as ``test``: an
    arrow table, or columns by name. A column of images may be one array, (n, H, W) or (n, H, W, 3)
    of uint8.
    """
    assert spec.read is not None
    found = spec.read()
    if not isinstance(found, Mapping) or "train" not in found:
        raise UserError(f"Dataset '{spec.name}': read() must return tables by split, with 'train'.")
    train, test = (_as_table(spec, found.get(split), split) for split in ("train", "test"))
    assert train is not None
    return _as_rows(spec, train, test)


def _as_table(spec: DatasetSpec, rows: Any, split: str) -> pa.Table | None:
    if rows is None:
        return None
    try:
        if not isinstance(rows, pa.Table):
            rows = pa.table({name: _as_column(values) for name, values in dict(rows).items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError(
            f"Dataset '{spec.name}': its {split} rows are not a table ({error})."
        ) from error
    if spec.kind:
        _check_columns(spec, rows.column_names, f"what read() returns as {split}")
        rows = rows.select(_columns(spec))
    return rows


def _as_column(values: Any) -> Any:
    is_images = isinstance(values, np.ndarray) and values.ndim > 2
    return _encoded(values) if is_images else values


def _encoded(images: np.ndarray) -> list[dict[str, bytes]]:
    """Write pixels as the hub has images."""
    from PIL import Image

    images = images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images
    encoded = []
    for pixels in images:
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, format="png")
        encoded.append({"bytes": png.getvalue()})
    return encoded


def _hub_identity(spec: DatasetSpec) -> tuple[Any, ...]:
    """Name the copy and how its test rows are found; a local folder is known by its files too."""
    identity: tuple[Any, ...] = (spec.hub_id, spec.hub_subset, *_asked_columns(spec))
    if spec.test_split is None:
        identity += ("its test split, if any",)
    folder = Path(spec.hub_id or "")
    files = sorted(folder.glob("*.parquet")) if spec.hub_id and folder.is_dir() else []
    return (*identity, *(_file_identity(path) for path in files))


def _mirror(spec: DatasetSpec, folder: Path) -> Source:
    train = _split_files(folder, "train", spec.train_split)
    test = _split_files(folder, *_test_names(spec))
    if spec.test_split and not test:
        raise UserError(
            f"'{folder}' has train-*.parquet of {spec.name} but no test-*.parquet"
            + (f" nor {spec.test_split}-*.parquet" if spec.test_split != "test" else "")
            + ". Put its test files there too."
        )
    identity = (str(folder), *(_file_identity(path) for path in train + test))
    identity += _asked_columns(spec)
    return Source("data-root", identity, lambda: _read_mirror(spec, train, test))


def _test_names(spec: DatasetSpec) -> tuple[str, ...]:
    """Return the names that the test split may have, best first."""
    if not spec.kind:
        return TESTS
    return ("test", spec.test_split) if spec.test_split else ("test",)


def _split_files(folder: Path, *splits: str) -> list[Path]:
    """List the files of the first of ``splits`` that has any."""
    for split in splits:
        files = sorted(folder.glob(f"{split}-*.parquet"))
        if files:
            return files
    return []


def _file_identity(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return path.name, status.st_size, status.st_mtime_ns


def _read_digits(spec: DatasetSpec) -> Rows:
    """Take scikit-learn's digits (8x8, values 0 to 16), a stratified fifth of them as test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = _encoded(digits.images.astype(np.uint8))
    table = pa.table({spec.inputs: images, spec.label: digits.target})
    train, test = train_test_split(
        np.arange(len(images)), test_size=0.2, stratify=digits.target, random_state=SPLIT_SEED
    )
    names = tuple(str(name) for name in digits.target_names)
    return Rows(table.take(pa.array(np.sort(train))), table.take(pa.array(np.sort(test))), names)


def _read_mirror(spec: DatasetSpec, train: Sequence[Path], test: Sequence[Path]) -> Rows:
    return _as_rows(spec, _read_parquet(spec, train), _read_parquet(spec, test) if test else None)


def _read_parquet(spec: DatasetSpec, files: Sequence[Path]) -> pa.Table:
    """Read the needed columns of the shards of one split."""
    tables = []
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                if spec.kind:
                    _check_columns(spec, file.schema_arrow.names, str(path))
                tables.append(file.read(columns=_columns(spec) if spec.kind else None))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"'{path}' cannot be read as a parquet file: {error}.") from error
    return pa.concat_tables(tables, promote_options="permissive")


def _columns(spec: DatasetSpec) -> list[str]:
    inputs = (spec.inputs,) if isinstance(spec.inputs, str) else spec.inputs
    return [*inputs, spec.label, *([spec.owner] if spec.owner else [])]


def _check_columns(spec: DatasetSpec, present: Sequence[str], where: str) -> None:
    for column in _columns(spec):
        if column not in present:
            raise UserError(
                f"Dataset '{spec.name}' needs a column '{column}', which {where} does not have. "
                f"Columns there: {', '.join(present)}."
            )


def _as_rows(spec: DatasetSpec, train: pa.Table, test: pa.Table | None) -> Rows:
    names = class_names(train.schema, spec.label)
    if spec.first_classes:
        names = names[: spec.first_classes] if names else None
        train = _of_first_classes(spec, train)
        test = _of_first_classes(spec, test) if test is not None else None
    if test is None:
        train, test = hold_out_test(spec, train)
    if not train.num_rows or not test.num_rows:
        raise UserError(
            f"Dataset '{spec.name}' has too few rows: {train.num_rows} to train on, "
            f"{test.num_rows} to test on."
        )
    return Rows(train, test, names)


def _of_first_classes(spec: DatasetSpec, table: pa.Table) -> pa.Table:
    """Keep the rows of the first classes, which must be numbered."""
    if not pa.types.is_integer(table[spec.label].type):
        raise UserError(
            f"Dataset '{spec.name}' keeps the classes 0 to {spec.first_classes - 1}, but column "
            f"'{spec.label}' holds {table[spec.label].type} and not class numbers."
        )
    return table.filter(pc.less(table[spec.label], spec.first_classes))


def class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    """Read the names of a ClassLabel from the feature metadata that the hub's files carry."""
    metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    feature = metadata.get("info", {}).get("features", {}).get(label, {})
    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    return tuple(names) if names else None


def hold_out_test(spec: DatasetSpec, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split off a tenth as test, always the same rows.

    The rows are drawn at random, except for character windows: neighbours share all but one
    character, so there the test is the end of what each owner says (see :func:`_window_ends`).
    """
    if spec.kind == "chars" and spec.owner:
        train, test = _window_ends(table[spec.owner], spec.input_shape[0])
    else:
        rows = table.num_rows
        test = np.zeros(rows, dtype=bool)
        draw = seeds.generator(SPLIT_SEED, "held-out test").permutation(rows)
        test[draw[: round(rows / 10)]] = True
        train = ~test
    return table.filter(pa.array(train)), table.filter(pa.array(test))


def _window_ends(owner: pa.ChunkedArray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark each owner's first nine tenths as train and the rest as test.

    The ``length - 1`` windows between that overlap both belong to neither, as in LEAF.
    """
    codes = pc.index_in(owner, value_set=pc.unique(owner)).to_numpy()
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    place = np.empty(len(codes), dtype=np.int64)
    place[order] = np.arange(len(codes)) - starts[codes[order]]
    train_rows = (counts * 9 // 10)[codes]
    return place < train_rows, place >= train_rows + length - 1


def _read_hub(spec: DatasetSpec, root: Path | None) -> Rows:
    if spec.hub_id is None:
        raise _not_found(spec, root, "no copy that can be loaded is known there")
    reason = "" if Path(spec.hub_id).is_dir() else _why_offline()
    try:
        with _offline_mode(bool(reason)):
            return _load_from_hub(spec)
    except UserError:
        raise
    except Exception as error:  # whatever the hub's libraries raise, the user needs one sentence
        short = str(error).partition("\n")[0][:200].rstrip(".")
        raise _not_found(spec, root, reason or short or type(error).__name__) from error


def _load_from_hub(spec: DatasetSpec) -> Rows:
    from flwr_datasets import FederatedDataset

    offered: list[str] = []

    def note_splits(dataset: Any) -> Any:
        offered.extend(dataset)
        return dataset

    federated = FederatedDataset(
        dataset=spec.hub_id,
        subset=spec.hub_subset,
        preprocessor=note_splits,
        partitioners={spec.train_split: 1},
        shuffle=False,
    )
    train = _hub_table(spec, federated.load_split(spec.train_split))
    test = spec.test_split or next((n for n in _test_names(spec) if n in offered), None)
    return _as_rows(spec, train, _hub_table(spec, federated.load_split(test)) if test else None)


def _hub_table(spec: DatasetSpec, split: Any) -> pa.Table:
    """Turn a ``datasets.Dataset`` into the table that its parquet files hold."""
    table = split.data.table
    if spec.kind:
        _check_columns(spec, split.column_names, f"'{spec.hub_id}' on the hub")
        table = table.select(_columns(spec))
    return table.replace_schema_metadata(split.features.arrow_schema.metadata)


def _why_offline() -> str:
    """Return in a few words why the hub cannot be reached; empty if it can."""
    for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        if os.environ.get(key, "").upper() in {"1", "ON", "YES", "TRUE"}:
            return f"{key} is set, and it is not in the hub's own cache"
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT_SECONDS)
    except Exception as error:  # its HTTP library is an implementation detail of the hub client
        return f"no connection to {constants.ENDPOINT}: {error}"
    return ""


@contextmanager
def _offline_mode(enabled: bool) -> Iterator[None]:
    """Let ``datasets`` look only into its own cache, rather than retry a dead network."""
    if not enabled:
        yield
        return
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


def _not_found(spec: DatasetSpec, root: Path | None, reason: str) -> UserError:
    """Return the error that names where a dataset was looked for, and two ways to provide it."""
    mirror = f"data-root '{root}' has no" if root is not None else "data-root is not set, so no"
    hub = f"the Hugging Face hub as '{spec.hub_id}'" if spec.hub_id else "the Hugging Face hub"
    ways = f"Set data-root to a folder that holds {spec.folder}/train-*.parquet"
    if spec.hub_id:
        ways += (
            ", or run once on a machine that reaches the hub, which fills the cache directory "
            "(FEDSUITE_CACHE)"
        )
    return UserError(
        f"Dataset '{spec.name}' was found neither in a mirror ({mirror} "
        f"{spec.folder}/train-*.parquet) nor on {hub} ({reason}). {ways}."
    )
