"""Tasks over rows that nodes own: the task of a node, and that of the server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedsuite.core.protocol import OWN
from tasks.arrow import pa
from tasks.cached_arrays import check_form, map_array, open_or_build, read_meta, write_meta
from tasks.dataset_cache import Dataset, default_cache_dir, is_local
from tasks.datasets import OWN_SPEC, described, find_dataset
from tasks.own_data import describe, form_of, write_own_arrays
from tasks.own_files import data_files, files_identity, read_rows
from tasks.own_schema import Description, Schema, read_schema
from tasks.sources import find_source
from tasks.split import Split, draw_probe, hold_out_own_test
from tasks.task import Task

NO_ROWS = np.zeros(0, dtype=np.int64)


def describe_path(path: Path, dataset: str, label: str) -> Description:
    """Describe the rows that a node has at a path."""
    table = read_rows(path, dataset, label)
    return describe(form_of(dataset, label, table), table)


@lru_cache(maxsize=2)
def own_task(
    path: Path, schema: str, client: int, num_clients: int, seed: int, test_fraction: float
) -> Task:
    """Return the task of a node that is one client; the others' rows are not here."""
    dataset = _open(path, read_schema(schema))
    kept, held = hold_out_own_test(np.arange(len(dataset.y)), test_fraction, seed, client)
    train, own_test = [NO_ROWS] * num_clients, [NO_ROWS] * num_clients
    train[client], own_test[client] = kept, held
    return Task(dataset, Split(train, own_test, NO_ROWS, NO_ROWS))


def server_task(
    schema: Schema, server_data: str, data_root: str, probe_per_class: int, seed: int
) -> Task:
    """Return the task of a server whose nodes own the data.

    Its test rows are ``server_data``, else the test rows of a named dataset that is on this
    machine, else none.
    """
    if server_data:
        dataset = _open(Path(server_data).expanduser(), schema)
    elif schema.dataset != OWN and is_local(schema.dataset, data_root):
        source = find_source(find_dataset(schema.dataset), data_root)
        dataset = _cached(lambda: source.read().test, schema, json.dumps(source.identity))
    else:
        dataset = _dataset(schema, np.zeros((0, 1), np.float32), NO_ROWS)
    rows = np.arange(len(dataset.y))
    probe = draw_probe(dataset, rows, probe_per_class, seed) if len(rows) else NO_ROWS
    name = hashlib.sha256(schema.to_json().encode()).hexdigest()[:16]
    return Task(dataset, Split([], [], probe, np.setdiff1d(rows, probe), name))


def _open(path: Path, schema: Schema) -> Dataset:
    """Map a path's arrays, made on first use and again whenever its files change."""
    identity = json.dumps([str(path.absolute()), files_identity(data_files(path))])
    return _cached(lambda: read_rows(path, schema.dataset, schema.label), schema, identity)


def _cached(read: Callable[[], pa.Table], schema: Schema, identity: str) -> Dataset:
    key = hashlib.sha256(json.dumps([schema.to_json(), identity]).encode()).hexdigest()[:24]
    folder = default_cache_dir() / f"{OWN}-{key}"

    def build(place: Path) -> None:
        place.chmod(0o700)
        write_own_arrays(read(), schema, place)
        write_meta(place, json.loads(schema.to_json()))

    def opened(place: Path) -> Dataset:
        read_meta(place)
        x, y = map_array(place / "x.npy"), map_array(place / "y.npy")
        check_form(schema.data_shape, x, y)
        return _dataset(schema, x, y)

    return open_or_build(folder, "the node's own rows", build, opened)


def _dataset(schema: Schema, x: np.ndarray, y: np.ndarray) -> Dataset:
    spec = described(schema.dataset) or OWN_SPEC
    inputs, labels = schema.inputs, schema.labels
    return Dataset(spec, schema.data_shape, x, y, None, len(y), inputs, labels, OWN)
