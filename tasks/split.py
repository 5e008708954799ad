"""Split a dataset's rows: who trains and tests on which.

The order is fixed: the probe set is taken out of the training rows first, then train and test are
pooled if asked, then clients get their parts, then each client's own test rows are held out.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsuite.core import plugins, seeds
from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError, invalid, kebab
from tasks import schemes
from tasks.dataset_cache import Dataset, default_cache_dir
from tasks.partitions import PARTITIONS, PartitionOptions, Scheme, find_scheme
from tasks.schemes import Parts, Request
from tasks.task_spec import TaskSpec

logger = logging.getLogger(__name__)
SPLIT_VERSION = 1


@dataclass(frozen=True)
class Split:
    """Row numbers: each client's for training and for its own test, the probe's, the test's."""

    train: list[np.ndarray]
    own_test: list[np.ndarray]
    probe: np.ndarray
    test: np.ndarray
    name: str = ""

    @property
    def fingerprint(self) -> str:
        """A short hash that identifies this split."""
        return self.name or fingerprint([*self.train, *self.own_test, self.probe, self.test])


def divide(spec: TaskSpec, dataset: Dataset) -> Split:
    """Cut a dataset into a probe set, clients' parts and their own test rows."""
    train_rows = np.arange(dataset.num_train)
    test_rows = np.arange(dataset.num_train, len(dataset.y))
    probe = draw_probe(dataset, train_rows, spec.probe_per_class, spec.seed)
    pool = np.setdiff1d(train_rows, probe, assume_unique=True)
    if spec.pool_train_test:
        pool = np.concatenate([pool, test_rows])
    parts = partition(
        spec.partition,
        dataset.y[pool],
        spec.num_clients,
        spec.options,
        seeds.integer(spec.seed, "partition"),
        owners=None if dataset.owners is None else dataset.owners[pool],
        num_classes=dataset.shape.num_classes if dataset.shape.kind != "chars" else 0,
    )
    train, own_test = [], []
    for client, part in enumerate(parts):
        kept, held = hold_out_own_test(pool[part], spec.client_test_fraction, spec.seed, client)
        train.append(kept)
        own_test.append(held)
    test = np.sort(np.concatenate(own_test)) if spec.pool_train_test else test_rows
    return Split(train, own_test, probe, test)


def draw_probe(dataset: Dataset, rows: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Take ``per_class`` rows of every class out of some rows.

    Characters too rare for that are left out; any other class must have them.
    """
    if per_class == 0:
        return np.zeros(0, dtype=np.int64)
    draw = seeds.generator(seed, "probe")
    labels = dataset.y[rows]
    chosen = []
    for label in range(dataset.shape.num_classes):
        candidates = rows[labels == label]
        if len(candidates) <= per_class:
            if dataset.shape.kind == "chars":
                continue
            raise invalid(
                "probe-per-class",
                per_class,
                f"class {label} of {dataset.spec.name} has {len(candidates)} training samples, and "
                "some must remain. Use a smaller number.",
            )
        chosen.append(draw.choice(candidates, per_class, replace=False))
    return np.sort(np.concatenate(chosen))


def hold_out_own_test(
    rows: np.ndarray, fraction: float, seed: int, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a client's own test rows; both sides keep at least one row."""
    if fraction == 0:
        return rows, rows[:0]
    if len(rows) < 2:
        raise invalid(
            "client-test-fraction",
            fraction,
            f"it needs at least 2 samples per client, but client {client} has {len(rows)}. Use "
            "fewer clients or another partition.",
        )
    count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
    order = seeds.generator(seed, "hold-out", client).permutation(len(rows))
    return np.sort(rows[order[count:]]), np.sort(rows[order[:count]])


def partition(
    scheme: str,
    labels: np.ndarray,
    num_clients: int,
    options: PartitionOptions,
    seed: int,
    owners: np.ndarray | None = None,
    num_classes: int = 0,
) -> list[np.ndarray]:
    """Divide rows among clients.

    Parameters
    ----------
    scheme : str
        One of :data:`tasks.partitions.PARTITIONS`, or one from outside.
    labels : np.ndarray
        The class of every row.
    num_clients : int
        How many parts to make.
    options : PartitionOptions
        The settings of the schemes.
    seed : int
        The same seed gives the same parts.
    owners : np.ndarray | None
        For ``natural``: who every row came from, as numbers or names.
    num_classes : int
        How many classes there should be; 0 takes those seen in ``labels``.

    Returns
    -------
    list[np.ndarray]
        One sorted int64 array of indices into ``labels`` per client; disjoint, none empty.
    """
    outside = find_scheme(scheme)
    labels = np.asarray(labels)
    _check_sizes(labels, num_clients, owners, num_classes)
    order = seeds.generator(seed, "partition order").permutation(len(labels))
    request = Request(
        labels=labels[order],
        num_clients=num_clients,
        options=options,
        seed=seed,
        owners=None if owners is None else np.asarray(owners)[order],
        num_classes=num_classes,
    )
    if outside is None:
        divided: Parts = getattr(schemes, scheme)(request)
    else:
        divided = _checked(scheme, outside(request), request)
    parts = [np.sort(order[part]).astype(np.int64) for part in divided]
    _verify(scheme, parts, request)
    return parts


def fingerprint(parts: Sequence[np.ndarray]) -> str:
    """Return 16 hex digits that identify a split: who has which rows."""
    digest = hashlib.sha256(f"{len(parts)}".encode())
    for part in parts:
        digest.update(f":{len(part)}:".encode())
        digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def label_counts(parts: Sequence[np.ndarray], labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the rows of every class per client, as a (num_clients, num_classes) array."""
    labels = np.asarray(labels)
    counts = np.zeros((len(parts), num_classes), dtype=np.int64)
    for client, part in enumerate(parts):
        counts[client] = np.bincount(labels[part], minlength=num_classes)
    return counts


def cached_split(spec: TaskSpec, dataset: Dataset) -> Split:
    """Divide a dataset once per machine: later processes read what the first one wrote."""
    identity: dict[str, Any] = {
        "version": SPLIT_VERSION,
        "rows": [len(dataset.y), dataset.num_train],
        "labels": hashlib.sha256(dataset.y.tobytes()).hexdigest(),
    }
    if find_scheme(spec.partition):
        reference = plugins.reference_of("partition", spec.partition)
        identity["scheme"] = plugins.source_version(reference)
    key = json.dumps(asdict(spec) | identity, sort_keys=True)
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    path = default_cache_dir() / "splits" / name
    try:
        return _read_split(path, spec.num_clients)
    except FileNotFoundError:
        pass
    except Exception as error:  # whatever a damaged file makes numpy and zipfile raise
        logger.warning("Dividing %s again: %s is damaged (%s).", spec.dataset, path, error)
    split = divide(spec, dataset)
    try:
        _write_split(path, split)
    except OSError as error:
        logger.info("The split of %s is not kept for the next start (%s).", spec.dataset, error)
    return split


def _read_split(path: Path, num_clients: int) -> Split:
    with np.load(path) as arrays:
        train = np.split(arrays["train"], arrays["train_ends"][:-1])
        own_test = np.split(arrays["own_test"], arrays["own_test_ends"][:-1])
        if not len(train) == len(own_test) == num_clients:
            raise ValueError(f"it has {len(train)} clients instead of {num_clients}")
        return Split(train, own_test, arrays["probe"], arrays["test"])


def _write_split(path: Path, split: Split) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez(
        content,
        train=np.concatenate(split.train),
        train_ends=np.cumsum([len(part) for part in split.train]),
        own_test=np.concatenate(split.own_test),
        own_test_ends=np.cumsum([len(part) for part in split.own_test]),
        probe=split.probe,
        test=split.test,
    )
    write_atomically(path, content.getvalue())


def _check_sizes(
    labels: np.ndarray, num_clients: int, owners: np.ndarray | None, num_classes: int
) -> None:
    """Refuse what no scheme can divide."""
    if num_clients < 1:
        raise invalid("num-clients", num_clients, "it must be at least 1.")
    if num_clients > len(labels):
        raise invalid(
            "num-clients",
            num_clients,
            f"there are {len(labels)} samples to divide. Use at most {len(labels)} clients.",
        )
    if owners is not None and len(owners) != len(labels):
        raise ValueError(f"There are {len(owners)} owners for {len(labels)} labels.")
    if num_classes and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(
            f"Labels go from {labels.min()} to {labels.max()}, outside {num_classes} classes."
        )


def _checked(scheme: str, parts: Any, request: Request) -> Parts:
    """Return the parts of a scheme from outside; refuse what is not an array of rows per client."""
    try:
        arrays = [np.asarray(part) for part in parts]
    except (TypeError, ValueError):
        arrays = []
    whole = all(a.ndim == 1 and (not len(a) or a.dtype.kind in "iu") for a in arrays)
    if len(arrays) != request.num_clients or not whole:
        raise UserError(
            f"partition '{scheme}' must return {request.num_clients} arrays of row numbers, one "
            "per client."
        )
    rows = len(request.labels)
    if any(len(part) and not 0 <= part.min() <= part.max() < rows for part in arrays):
        raise UserError(f"partition '{scheme}' gave rows that are none of 0 to {rows - 1}.")
    return [part.astype(np.int64) for part in arrays]


def _verify(scheme: str, parts: Parts, request: Request) -> None:
    """Refuse parts that leave a client empty or give a row to two clients."""
    described = f"partition '{scheme}'"
    settings = PARTITIONS.get(scheme, Scheme("from outside")).settings
    chosen = [f"{kebab(key)} = {getattr(request.options, key):g}" for key in settings]
    if chosen:
        described += f" with {' and '.join(chosen)}"
    advice = "Use fewer clients, another partition" + (
        f" or another {' or '.join(map(kebab, settings))}." if chosen else " or more data."
    )
    for client, part in enumerate(parts):
        if len(part) == 0:
            raise UserError(
                f"{described} left client {client} without data ({request.num_clients} clients, "
                f"{len(request.labels)} samples). {advice}"
            )
    if np.bincount(np.concatenate(parts)).max() > 1:
        raise UserError(f"{described} gave the same sample to two clients. {advice}")
