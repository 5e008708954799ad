"""The ways to divide rows among clients, by name.

A scheme is an entry here and the function of the same name in :mod:`tasks.schemes`, which divides
rows. Nothing heavy is imported here; :func:`tasks.split.partition` calls them. One from outside is
such a function too, see :mod:`fedsuite.core.plugins`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsuite.core import plugins
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import invalid, kebab

if TYPE_CHECKING:
    from tasks.schemes import Parts, Request

    Divide = Callable[[Request], Parts]


@dataclass(frozen=True)
class Scheme:
    """What a scheme does, and which of :class:`PartitionOptions` it reads."""

    summary: str
    settings: tuple[str, ...] = ()


PARTITIONS: dict[str, Scheme] = {
    "iid": Scheme("equal parts, drawn at random"),
    "dirichlet": Scheme(
        "each class in shares drawn from Dir(dirichlet-alpha)", ("dirichlet_alpha",)
    ),
    "shards": Scheme(
        "label-sorted shards, shards-per-client each", ("num_shards", "shards_per_client")
    ),
    "pathological": Scheme("classes-per-client classes each", ("classes_per_client",)),
    "groups": Scheme("TACO's groups A, B, C with 10, 20 and 50 % of the labels"),
    "natural": Scheme(
        "one owner of the data per client, or owners of natural-rows rows pooled", ("natural_rows",)
    ),
    "sizes": Scheme(
        "random rows in geometric sizes, largest = size-ratio x smallest", ("size_ratio",)
    ),
}


@dataclass(frozen=True)
class PartitionOptions:
    """The settings of the schemes; each scheme reads its own."""

    dirichlet_alpha: float = 0.5
    num_shards: int = 0  # 0: num_clients * shards_per_client
    shards_per_client: int = 2
    classes_per_client: int = 2
    natural_rows: int = 0  # 0: one owner per client
    size_ratio: float = 10.0  # sizes: largest client / smallest client

    def __post_init__(self) -> None:
        """Refuse values no scheme could work with."""
        alpha = self.dirichlet_alpha
        if not 0 < alpha < math.inf:
            raise invalid("dirichlet-alpha", alpha, "it must be more than 0.")
        lowest = {"num_shards": 0, "shards_per_client": 1, "classes_per_client": 1}
        lowest |= {"natural_rows": 0, "size_ratio": 1}
        for name, low in lowest.items():
            value = getattr(self, name)
            if not low <= value < math.inf:
                raise invalid(kebab(name), value, f"it must be at least {low}.")


def find_scheme(name: str) -> Divide | None:
    """Return a scheme from outside, None for one of ours; refuse a name that is none."""
    if name in PARTITIONS or name == OWN:
        return None
    divide: Divide = plugins.find("partition", name, (*PARTITIONS, OWN))
    if not callable(divide):
        raise invalid("partition", name, "it is not a function that divides rows.")
    return divide


def group_of(client: int, num_clients: int) -> str:
    """Return the TACO group of a client: A, B, C, A, B, C, ... in client order.

    The paper says only that clients are divided "randomly" into three groups (Section IV-A), so
    groups are as even as can be: any left over goes to A, then B (20 clients: 7, 7, 6). Taking
    turns keeps every group represented among the clients that are freeloaders by their number.
    """
    if not 0 <= client < num_clients:
        raise ValueError(f"There is no client {client} among {num_clients}.")
    return "ABC"[client % 3]
