"""The schemes that divide rows among clients: each a function of the labels and a seed.

The draws are those of the ``flwr-datasets`` partitioners wherever one exists; they are given the
label column alone, so no picture is ever decoded for a split. Rows are put in a seeded order
first: what a scheme cuts (a class, a shard, a size) is then a random draw of the rows that
qualify and not a stretch of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsuite.core.seeds import generator, integer
from fedsuite.core.settings import UserError, invalid
from tasks.flower_partitioners import divide_by
from tasks.partitions import PartitionOptions, group_of

MIN_CLIENT_SAMPLES = 2
GROUP_LABEL_PERCENT = {"A": 10, "B": 20, "C": 50}

Parts = list[np.ndarray]


@dataclass(frozen=True)
class Request:
    """What a scheme divides: rows already in their seeded order."""

    labels: np.ndarray
    num_clients: int
    options: PartitionOptions
    seed: int
    owners: np.ndarray | None
    num_classes: int


def iid(request: Request) -> Parts:
    """Divide rows into equal parts at random."""
    from flwr_datasets.partitioner import IidPartitioner

    return divide_by(IidPartitioner(request.num_clients), request.labels)


def dirichlet(request: Request) -> Parts:
    """Divide each class by shares drawn from Dir(alpha), skipping full clients (self-balancing)."""
    from flwr_datasets.partitioner import DirichletPartitioner

    alpha = request.options.dirichlet_alpha
    partitioner = DirichletPartitioner(
        num_partitions=request.num_clients,
        partition_by="label",
        alpha=float(alpha),
        min_partition_size=MIN_CLIENT_SAMPLES,
        self_balancing=True,
        shuffle=False,
        seed=integer(request.seed, "dirichlet"),
    )
    try:
        return divide_by(partitioner, request.labels)
    except ValueError:
        raise UserError(
            f"partition 'dirichlet' with dirichlet-alpha = {alpha:g} left a client with fewer "
            f"than {MIN_CLIENT_SAMPLES} samples in every draw ({request.num_clients} clients, "
            f"{len(request.labels)} samples). Use a larger dirichlet-alpha or fewer clients."
        ) from None


def shards(request: Request) -> Parts:
    """Cut rows sorted by label into shards of equal size; give each client some.

    The shards are cut here, to within one row of each other, and ``ShardPartitioner`` deals them
    out one by one. Left to cut them itself it drops the remainder: with 199 rows for 100 shards,
    almost half of them. With ``num_shards`` above what clients take, the rest is left unused, as
    in FedBaC (300 shards, 20 clients with 2 each).
    """
    from flwr_datasets.partitioner import ShardPartitioner

    each, rows = request.options.shards_per_client, len(request.labels)
    needed = request.num_clients * each
    num_shards = request.options.num_shards or needed
    if num_shards < needed:
        raise invalid(
            "num-shards",
            num_shards,
            f"{request.num_clients} clients with shards-per-client = {each} take {needed}. Use at "
            f"least {needed}, or 0 for exactly that.",
        )
    if num_shards > rows:
        raise UserError(
            f"partition 'shards' cannot cut {rows} samples into {num_shards} shards. "
            "Use a smaller num-shards or shards-per-client, or fewer clients."
        )
    shards = np.array_split(np.argsort(request.labels, kind="stable"), num_shards)
    partitioner = ShardPartitioner(
        num_partitions=request.num_clients,
        partition_by="label",
        num_shards_per_partition=each,
        shard_size=1,
        shuffle=False,
        seed=integer(request.seed, "shards"),
    )
    hands = divide_by(partitioner, np.arange(num_shards))
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


def pathological(request: Request) -> Parts:
    """Give clients ``classes_per_client`` classes, a class's rows in equal parts for its holders.

    With at least as many clients as classes, mode "first-deterministic" makes sure that every
    class is held: client ``c`` has class ``c mod C``, the others are drawn. With fewer clients no
    mode does (clients 0-4 with 2 of 10 classes hold 6 of them at best), so the classes are dealt
    here as for ``groups``.
    """
    from flwr_datasets.partitioner import PathologicalPartitioner

    classes, each = _classes(request, "pathological"), request.options.classes_per_client
    if each > len(classes):
        raise invalid(
            "classes-per-client",
            each,
            f"the data has {len(classes)} classes. Use at most {len(classes)}.",
        )
    if request.num_clients < len(classes):
        return _deal_classes(request, classes, [each] * request.num_clients)
    partitioner = PathologicalPartitioner(
        num_partitions=request.num_clients,
        partition_by="label",
        num_classes_per_partition=each,
        class_assignment_mode="first-deterministic",
        shuffle=False,
        seed=integer(request.seed, "pathological"),
    )
    try:
        return divide_by(partitioner, request.labels)
    except ValueError:
        raise UserError(
            f"partition 'pathological' with classes-per-client = {each} gave a class to more "
            f"clients than it has samples ({request.num_clients} clients, {len(request.labels)} "
            "samples). Use fewer clients or a smaller classes-per-client."
        ) from None


def groups(request: Request) -> Parts:
    """Form TACO's three groups (Section IV-A): clients with 10, 20 or 50 % of the labels.

    The number of classes is rounded to the nearest, halves up, and is at least one: 1, 2 and 5 of
    10 classes; 6, 12 and 31 of 62. Which ones is drawn, and the rows of a class are divided
    equally among its holders, on which the paper is silent.
    """
    classes = _classes(request, "groups")
    shares = [
        GROUP_LABEL_PERCENT[group_of(client, request.num_clients)]
        for client in range(request.num_clients)
    ]
    return _deal_classes(
        request, classes, [max(1, (share * len(classes) + 50) // 100) for share in shares]
    )


def natural(request: Request) -> Parts:
    """Give each client one owner's rows: ``num_clients`` owners drawn, in owner order.

    With ``natural_rows`` owners are drawn until they hold so many rows, and pooled.

    This is ``NaturalIdPartitioner`` in vectorised form: that one walks the rows in Python, and
    takes a minute for the 3.3 million of Shakespeare.
    """
    if request.owners is None:
        raise UserError(
            "partition 'natural' needs a dataset whose rows have owners: femnist or "
            "femnist-digits (writers), shakespeare (speakers), or data of your own with an "
            "owner-column. Use one of these or another partition."
        )
    names, owner = np.unique(request.owners, return_inverse=True)
    if request.num_clients > len(names):
        raise invalid(
            "num-clients",
            request.num_clients,
            f"partition 'natural' has a client per owner, and the dataset has {len(names)} owners. "
            f"Use at most {len(names)}.",
        )
    ends = np.cumsum(np.bincount(owner))
    rows_of = np.split(np.argsort(owner, kind="stable"), ends[:-1])
    drawn = generator(request.seed, "owners").permutation(len(names))
    if request.options.natural_rows:
        return _pool_owners(request, [rows_of[name] for name in drawn])
    return [rows_of[name] for name in np.sort(drawn[: request.num_clients])]


def _pool_owners(request: Request, owned: Parts) -> Parts:
    """Deal owners, in the order drawn, each to the client with the fewest rows so far.

    The last owner gives only as many rows as are still wanted.
    """
    wanted, total = request.options.natural_rows, len(request.labels)
    if wanted > total:
        raise invalid("natural-rows", wanted, f"there are {total} samples. Use at most {total}.")
    hands: list[Parts] = [[] for _ in range(request.num_clients)]
    held = np.zeros(request.num_clients, dtype=np.int64)
    for rows in owned:
        part = rows[: wanted - held.sum()]
        if not len(part):
            break
        client = int(np.argmin(held))
        hands[client].append(part)
        held[client] += len(part)
    if not held.all():
        raise invalid(
            "natural-rows",
            wanted,
            f"so many are held by {np.count_nonzero(held)} of the owners drawn, fewer than "
            f"num-clients = {request.num_clients}. Use more samples or fewer clients.",
        )
    return [np.concatenate(hand) for hand in hands]


def sizes(request: Request) -> Parts:
    """Divide rows at random, in sizes that grow geometrically from client to client."""
    from flwr_datasets.partitioner import SizePartitioner

    sizes = _geometric_sizes(len(request.labels), request.num_clients, request.options.size_ratio)
    return divide_by(SizePartitioner(sizes), request.labels)


def _classes(request: Request, scheme: str) -> np.ndarray:
    """Return the classes a scheme can assign, refusing if one of them has no rows."""
    seen = np.unique(request.labels)
    missing = np.setdiff1d(np.arange(request.num_classes), seen)
    if len(missing):
        numbers = ", ".join(str(label) for label in missing)
        raise UserError(
            f"partition '{scheme}' assigns classes to clients, but there are no samples of "
            f"class {numbers} (of {request.num_classes}). Use another partition or more data."
        )
    return seen


def _deal_classes(request: Request, classes: np.ndarray, per_client: Sequence[int]) -> Parts:
    """Give client ``c`` ``per_client[c]`` different classes and a part of each one's rows.

    A client takes the classes that have the fewest holders so far, ties broken by the seed. So
    the numbers of holders differ by one at most, and every class is held if there are enough.
    """
    draw = generator(request.seed, "classes")
    holders: list[list[int]] = [[] for _ in classes]
    for client, count in enumerate(per_client):
        taken = np.array([len(clients) for clients in holders])
        for label in np.lexsort((draw.random(len(classes)), taken))[:count]:
            holders[label].append(client)
    pieces: list[Parts] = [[] for _ in per_client]
    for label, clients in zip(classes, holders, strict=True):
        if clients:
            rows = np.flatnonzero(request.labels == label)
            for client, piece in zip(clients, np.array_split(rows, len(clients)), strict=True):
                pieces[client].append(piece)
    return [np.concatenate(piece) for piece in pieces]


def _geometric_sizes(total: int, count: int, ratio: float) -> list[int]:
    """Return ``count`` ascending whole numbers >= 1 that add up to ``total``.

    They follow ``ratio ** (i / (count - 1))`` as nearly as whole numbers can.
    """
    weights = float(ratio) ** (np.linspace(0, 1, count) - 1) if count > 1 else np.ones(1)
    ideal = total * weights / weights.sum()
    sizes = np.maximum(np.floor(ideal), 1).astype(np.int64)
    sizes[np.argsort(sizes - ideal)[: max(0, total - sizes.sum())]] += 1
    while (over := sizes.sum() - total) > 0:
        above_one = np.flatnonzero(sizes > 1)
        sizes[above_one[np.argsort((ideal - sizes)[above_one])[:over]]] -= 1
    return [int(size) for size in np.sort(sizes)]
