"""What the training loop needs of nodes, simulated or deployed.

The loop calls :meth:`Nodes.open_run`, then :meth:`Nodes.meet`, and in every round
:meth:`Nodes.prepare_round` and :meth:`Nodes.exchange`. The strategy itself sees only
:class:`strategies.round.Hosts`: which clients are available, and which node computes which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedsuite.config import RunConfig
from strategies.round import Hosts

# The keys of a checkpoint that keep :attr:`Nodes.identities` and :attr:`Nodes.state_rounds`.
IDENTITIES, STATE_ROUNDS = "members", "state-rounds"


class Nodes(Hosts, Protocol):
    """The nodes that compute a run's clients."""

    @property
    def share_disk(self) -> bool:
        """Whether all nodes write to the server's disk, as in a simulation."""

    @property
    def identities(self) -> Mapping[str, int]:
        """The clients known by their owner's name rather than by a number, owner -> client."""

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The newest states that clients have on disks of their own, client -> round."""

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Set what every message says of the run; called again when its settings change."""

    def sharing_vectors(self, folder: Path) -> AbstractContextManager[None]:
        """Keep the run's vectors in files for a block, if all nodes write to the server's disk."""

    def save(self, folder: Path) -> None:
        """Write to the run's folder what was agreed with the nodes."""

    def meet(self, grid: Grid) -> None:
        """Meet the nodes before the first round, so that problems show early."""

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Wait until enough clients are connected; return the number of all clients known."""

    def client_sizes(self) -> dict[int, int]:
        """Return how many rows each client trains on, as far as known."""

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages and return their replies, after ``seconds`` at most."""
