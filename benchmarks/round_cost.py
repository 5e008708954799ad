"""A model of what a round costs, in bytes and seconds, for sizes that no machine here can hold.

``seconds = training + overhead + network``, where

- training: ``ceil(n / W)`` clients one after the other on each of ``W`` workers;
- overhead: a constant, so much per client, per byte of the model, per byte of clients' vectors;
- network: on a cluster, all bytes over the server's link; on one machine, none.

The four constants of the overhead are fitted to small runs and checked against larger ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.report import Trial, breakdown, table

ITEM = 4  # bytes of a parameter
LINK = 1.25e9  # bytes per second: 10 Gbit/s, assumed
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class Size:
    """A round: ``P`` parameters, ``n`` clients, ``W`` workers on all machines together.

    All clients get ``broadcasts`` vectors, and each sends ``uploads``.
    """

    parameters: int
    clients: int
    workers: int
    machines: int = 1
    broadcasts: int = 1
    uploads: int = 1

    @property
    def model_bytes(self) -> int:
        """Bytes of what all clients get."""
        return ITEM * self.broadcasts * self.parameters

    @property
    def bytes_down(self) -> int:
        """Bytes from the server: written once for a machine, or sent to each worker."""
        return self.model_bytes * (self.workers if self.machines > 1 else 1)

    @property
    def bytes_up(self) -> int:
        """Bytes of the clients' vectors."""
        return ITEM * self.uploads * self.parameters * self.clients


@dataclass(frozen=True)
class Overhead:
    """Seconds beside training and network: per round, client, byte of the model and of updates."""

    per_round: float
    per_client: float
    per_model_byte: float
    per_update_byte: float

    def seconds(self, size: Size) -> float:
        """Return the overhead of a round."""
        constants = (self.per_round, self.per_client, self.per_model_byte, self.per_update_byte)
        return float(np.dot(constants, _quantities(size)))


@dataclass(frozen=True)
class Measured:
    """A run's round: its seconds, those beside training, and those of one client's training."""

    size: Size
    seconds: float
    beside_training: float
    client_seconds: float


def measured_round(trial: Trial, size: Size) -> Measured:
    """Return the medians of a run's rounds."""
    seconds, _, rest, all_clients, between = breakdown(trial)
    return Measured(size, seconds + between, rest + between, all_clients / size.clients)


def round_seconds(
    size: Size, overhead: Overhead, client_seconds: float, link: float = LINK
) -> float:
    """Return the seconds of a round whose clients train ``client_seconds`` each."""
    training = -(-size.clients // size.workers) * client_seconds
    network = (size.bytes_down + size.bytes_up) / link if size.machines > 1 else 0.0
    return training + overhead.seconds(size) + network


def fit(runs: Sequence[Measured]) -> Overhead:
    """Return the overhead that is nearest to some runs', none of its constants negative."""
    rows = np.array([_quantities(run.size) for run in runs], dtype=np.float64)
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale, [run.beside_training for run in runs])
    return Overhead(*(found / scale).tolist())


def _quantities(size: Size) -> tuple[int, int, int, int]:
    return 1, size.clients, size.model_bytes, size.bytes_up


def report(small: Mapping[str, Sequence[Measured]], large: Mapping[str, Sequence[Measured]]) -> str:
    """Write the constants, and predictions beside what was measured.

    Runs are by model; a client's training is that of the last of a model's small runs.
    """
    overhead = fit([run for runs in small.values() for run in runs])
    rows = []
    for kind, by_model in (("fitted", small), ("predicted", large)):
        for model, runs in by_model.items():
            client_seconds = small[model][-1].client_seconds
            for run in runs:
                guess = round_seconds(run.size, overhead, client_seconds)
                rows.append([model, kind, *_cells(run, overhead, guess)])
    header = ["model", "constants", "clients", "up", "measured s", "model s", "error"]
    header += ["beside training: measured s", "model s"]
    training = "; ".join(
        f"{model} {1e3 * runs[-1].client_seconds:.2f} ms" for model, runs in small.items()
    )
    return "\n\n".join(
        [
            f"Overhead: {overhead.per_round:.3f} s per round, "
            f"{1e3 * overhead.per_client:.3f} ms per client, "
            f"{1e9 * overhead.per_model_byte:.2f} s per GB of the model, "
            f"{1e9 * overhead.per_update_byte:.2f} s per GB of clients' vectors. "
            f"One client's training (one step): {training}.",
            table(header, rows),
        ]
    )


def _cells(run: Measured, overhead: Overhead, guess: float) -> list[str]:
    return [
        f"{run.size.clients:,}",
        amount(run.size.bytes_up),
        f"{run.seconds:.2f}",
        f"{guess:.2f}",
        f"{guess / run.seconds - 1:+.0%}",
        f"{run.beside_training:.2f}",
        f"{overhead.seconds(run.size):.2f}",
    ]


def amount(count: float) -> str:
    """Write a number of bytes."""
    factor, unit = next(((f, u) for f, u in UNITS if count >= f), UNITS[-1])
    return f"{count / factor:.1f} {unit}"
