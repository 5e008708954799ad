"""What the training loop asks of nodes, simulated or deployed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedsuite.config import RunConfig
from strategies.round import Hosts


class Nodes(Hosts, Protocol):
    """Who computes a run's clients."""

    @property
    def identities(self) -> Mapping[str, int]:
        """The numbers of clients that are known by a name."""

    def open_run(self, config: RunConfig, run_id: str, folder: Path) -> None:
        """Take in what every message must say of the run; again when its settings change."""

    def save(self, folder: Path) -> None:
        """Keep in the run's folder what was agreed with the nodes."""

    def meet(self, grid: Grid) -> None:
        """Meet the nodes before the first round, so that a problem shows early."""

    def prepare_round(self, grid: Grid, config: RunConfig, expelled: Collection[int]) -> int:
        """Wait until enough clients are there; return how many there are by now, here or not."""

    def client_sizes(self) -> dict[int, int]:
        """Return how many rows each client trains on, as far as is known."""

    def exchange(
        self, grid: Grid, messages: Sequence[Message], seconds: float
    ) -> Iterable[Message]:
        """Send messages and wait for their replies, so long at most."""
