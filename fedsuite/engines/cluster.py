"""An existing Ray cluster: its machines, and whether they can compute for this one.

Every machine needs the same code as this one and, unless results are fetched from it, must see the
folder of results. :func:`survey` asks each of them before anything is started.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedsuite.core.installation import PACKAGES, ROOT
from fedsuite.core.settings import UserError, invalid
from fedsuite.core.text import clean_line, counted

LIBRARIES = ("torch", "numpy", "flwr", "ray")
ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster, and what it says of itself."""

    node_id: str
    address: str
    cpus: float
    gpus: float
    code: str
    versions: str
    sees_folder: bool

    def slots(self, gpus: float, cores: int = 1) -> int:
        """Return how many workers fit on it, each with ``cores`` and ``gpus`` GPUs."""
        fitting = self.cpus / cores
        return int(min(fitting, self.gpus / gpus) if gpus else fitting)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect this process to a cluster, of which this machine must be a part."""
    import ray

    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        with warnings.catch_warnings():  # of what will change in a later version of Ray
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(
                address=address,
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": path}},
            )
    except Exception as error:  # whatever Ray raises where nobody, or something else, answers
        raise invalid(
            "--ray-address",
            address,
            f"no Ray cluster can be joined there ({clean_line(str(error), 200)}). Start one with "
            "`ray start --head`, and this machine's part of it with `ray start --address=...`.",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def survey(folder: Path) -> list[Machine]:
    """Ask every machine of the cluster that this process is connected to; refuse other code."""
    token = secrets.token_hex(8)
    mark = folder / f".{token}"
    mark.write_text(token)
    try:
        machines = [
            Machine(
                node_id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cpus=node["Resources"].get("CPU", 0.0),
                gpus=node["Resources"].get("GPU", 0.0),
                **answer,
            )
            for node, answer in _ask(_alive(), str(mark), token)
        ]
    finally:
        mark.unlink()
    refuse_other_code(machines)
    return machines


def describe_machine(mark: str, token: str) -> dict[str, Any]:
    """Describe the machine that this is executed on."""
    try:
        sees_folder = Path(mark).read_text() == token
    except OSError:
        sees_folder = False
    return {"code": code_digest(ROOT), "versions": versions(), "sees_folder": sees_folder}


def code_digest(root: Path) -> str:
    """Return a hash of all source files."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def versions() -> str:
    """Return the versions that a run's bits may depend on."""
    found = [f"{name} {version(name)}" for name in LIBRARIES]
    return ", ".join([f"Python {platform.python_version()}", *found])


def refuse_other_code(machines: Sequence[Machine]) -> None:
    """Refuse a cluster on whose machines the code or its libraries are not as here."""
    for machine in machines:
        if machine.code != code_digest(ROOT):
            raise UserError(
                f"The machine {machine.address} of the Ray cluster has other code of fedsuite "
                "than this one. Install the same version there."
            )
        if machine.versions != versions():
            raise UserError(
                f"The machine {machine.address} of the Ray cluster has {machine.versions}; this "
                f"one has {versions()}. Install the same versions, so that results are the same."
            )


def refuse_unshared(machines: Sequence[Machine], folder: Path) -> None:
    """Refuse a cluster whose machines do not see the results, where clients keep their states."""
    for machine in machines:
        if not machine.sees_folder:
            raise UserError(
                f"The machine {machine.address} of the Ray cluster does not see {folder}, where "
                "clients keep their states. Set results-dir to a folder that all machines share."
            )


def count_slots(machines: Sequence[Machine], gpus: float, cores: int = 1) -> int:
    """Return how many workers fit into the cluster; refuse one without any room."""
    slots = sum(machine.slots(gpus, cores) for machine in machines)
    if not slots:
        needs = counted(cores, "core") + (f" and {gpus:g} GPUs" if gpus else "")
        raise UserError(f"No machine of the Ray cluster has {needs} for a worker.")
    return slots


def describe_cluster(machines: Sequence[Machine], slots: int) -> str:
    """Say in a line what a run is computed on."""
    return f"on a Ray cluster of {counted(len(machines), 'machine')}, {counted(slots, 'worker')}"


def _alive() -> list[dict[str, Any]]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _ask(nodes: Sequence[Any], mark: str, token: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return machines with their answers; one that turns out to be gone is left out.

    Ray notices some seconds late that a machine has died.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    futures = [on_machine(describe_machine, node["NodeID"]).remote(mark, token) for node in nodes]
    answers = []
    for node, future in zip(nodes, futures, strict=True):
        address = node["NodeManagerAddress"]
        try:
            answers.append((node, ray.get(future, timeout=ANSWER_SECONDS)))
        except RayError as error:
            if node["NodeID"] not in [known["NodeID"] for known in _alive()]:
                continue
            if not isinstance(error, GetTimeoutError):
                reason = clean_line(str(error).strip().splitlines()[-1], 200)
                raise UserError(
                    f"The machine {address} of the Ray cluster cannot run fedsuite ({reason}). "
                    "Install the same version there, in the environment that Ray was started from."
                ) from error
            raise UserError(
                f"The machine {address} of the Ray cluster gave no answer within "
                f"{ANSWER_SECONDS:.0f} s. Is it overloaded, or gone?"
            ) from None
    return answers


def on_machine(function: Callable[..., Any], node_id: str) -> Any:
    """Return a function as one that Ray executes on one machine, beside what runs there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
