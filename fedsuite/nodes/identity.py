"""What a deployed SuperNode is: its node-config, its data, its state on its own disk.

The server never names a path on a node. A node with ``data-path`` trains on that and on nothing
else, whatever it is asked.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.protocol import OWN, PARTITION, member_name
from fedsuite.core.settings import UserError
from tasks.own_task import describe_path, own_task
from tasks.task import Task, open_task

HOW = (
    "Start the SuperNode with --node-config 'data-path=\"/its/data\"' for data of its own, or with "
    "--node-config 'partition-id=0 num-partitions=4' for a part of a shared dataset."
)


@dataclass(frozen=True)
class NodeData:
    """Where a deployed node's data and state are."""

    kind: str
    state_dir: Path
    data_path: Path | None = None
    partition: int = 0
    partitions: int = 0
    data_root: str = ""

    @property
    def identity(self) -> str:
        """The secret by which an owner of data is known again; made once, kept on its disk."""
        name = sha256(str(self.data_path).encode()).hexdigest()[:16]
        path = self.state_dir / f"identity-{name}"
        if not path.exists():
            make_private(self.state_dir)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            try:
                os.link(temporary, path)  # the first of two processes wins
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        return path.read_text()


def read_node_data(node_config: Mapping[str, Any]) -> NodeData:
    """Read a SuperNode's node-config; what is missing or contradictory is refused."""
    given = " ".join(f"{key}={value!r}" for key, value in node_config.items()) or "nothing"
    parts = [key for key in ("partition-id", "num-partitions") if key in node_config]
    default = os.environ.get("FEDSUITE_STATE") or Path.home() / ".local" / "state" / "fedsuite"
    state = Path(str(node_config.get("state-dir") or default)).expanduser().absolute()
    if "data-path" in node_config:
        if parts:
            raise UserError(
                f"node-config has data-path and {parts[0]}, which contradict each other: rows of "
                "its own, or a part of a shared dataset. Leave one of them out."
            )
        path = Path(str(node_config["data-path"])).expanduser().absolute()
        if not path.exists():
            raise UserError(f"data-path = '{path}' is not possible: it is not on this node.")
        return NodeData(OWN, state, data_path=path)
    if len(parts) < 2:
        raise UserError(f"node-config says {given}, not which data this node has. {HOW}")
    number, count = node_config["partition-id"], node_config["num-partitions"]
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (number, count))
    if not whole or not 0 <= number < count:
        raise UserError(
            f"partition-id = {number} of num-partitions = {count} is not possible: ids are whole "
            "numbers from 0, below num-partitions."
        )
    root = str(node_config.get("data-root", ""))
    return NodeData(PARTITION, state, partition=number, partitions=count, data_root=root)


def introduce(place: NodeData, config: RunConfig) -> dict[str, Any]:
    """Return what the server may know of this node."""
    if place.data_path is None:
        open_partition(place, dataclasses.replace(config, num_clients=place.partitions))
        return {"kind": PARTITION, "place": place.partition, "places": place.partitions}
    description = describe_path(place.data_path, config.dataset, config.label_column)
    return {"kind": OWN, "identity": place.identity, "description": description.to_json()}


def open_node_data(
    place: NodeData, config: RunConfig, order: Mapping[str, Any], client: int
) -> Task:
    """Open this node's data for the client it is; refuse to be anybody else."""
    if place.data_path is None:
        if order["data"] != PARTITION or client != place.partition:
            raise UserError(f"This node holds partition {place.partition} and no other data.")
        return open_partition(place, config)
    if order["data"] != OWN or order["member"] != member_name(place.identity):
        raise UserError(f"This node trains on {place.data_path} alone, as the client it was.")
    return own_task(
        place.data_path,
        str(order["schema"]),
        client,
        config.num_clients,
        config.seed,
        config.client_test_fraction,
    )


def open_partition(place: NodeData, config: RunConfig) -> Task:
    """Open a shared dataset, from this node's own mirror if it names one."""
    root = place.data_root or config.data_root
    return open_task(dataclasses.replace(config, data_root=root).task)


def make_private(folder: Path) -> None:
    """Make a folder that only this user reads; one that is there stays as it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(
            f"state-dir = '{folder}' is not possible: {error.strerror}. Choose a folder this node "
            "may write to."
        ) from None
