"""Divide rows among clients by one of ``PARTITIONS``, and describe the parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from fedsuite.core.seeds import generator
from fedsuite.core.settings import UserError, invalid, kebab, suggest
from tasks import schemes
from tasks.partitions import PARTITIONS, PartitionOptions
from tasks.schemes import Parts, Request


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
        One of :data:`tasks.partitions.PARTITIONS`.
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
    if scheme not in PARTITIONS:
        raise invalid("partition", scheme, suggest(scheme, PARTITIONS))
    labels = np.asarray(labels)
    _check_sizes(labels, num_clients, owners, num_classes)
    order = generator(seed, "partition order").permutation(len(labels))
    request = Request(
        labels=labels[order],
        num_clients=num_clients,
        options=options,
        seed=seed,
        owners=None if owners is None else np.asarray(owners)[order],
        num_classes=num_classes,
    )
    divide: Callable[[Request], Parts] = getattr(schemes, scheme)
    parts = [np.sort(order[part]).astype(np.int64) for part in divide(request)]
    _verify(scheme, parts, request)
    return parts


def fingerprint(parts: Sequence[np.ndarray]) -> str:
    """Return 16 hex digits that name a split: the same rows for the same clients."""
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


def _verify(scheme: str, parts: Parts, request: Request) -> None:
    """Make sure that no client is empty and no row was given twice."""
    described = f"partition '{scheme}'"
    chosen = [
        f"{kebab(key)} = {getattr(request.options, key):g}" for key in PARTITIONS[scheme].settings
    ]
    if chosen:
        described += f" with {' and '.join(chosen)}"
    advice = "Use fewer clients, another partition" + (
        f" or another {' or '.join(map(kebab, PARTITIONS[scheme].settings))}."
        if chosen
        else " or more data."
    )
    for client, part in enumerate(parts):
        if len(part) == 0:
            raise UserError(
                f"{described} left client {client} without data ({request.num_clients} clients, "
                f"{len(request.labels)} samples). {advice}"
            )
    if np.bincount(np.concatenate(parts)).max() > 1:
        raise UserError(f"{described} gave the same sample to two clients. {advice}")
