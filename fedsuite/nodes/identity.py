"""A deployed SuperNode: its node-config, its data, its state on its own disk.

The server never names a path on a node. A node with ``data-path`` trains on that and on nothing
else, whatever the server asks.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.files import absolute_path, create_private
from fedsuite.core.protocol import OWN, PARTITION, owner_name
from fedsuite.core.settings import UserError
from tasks.datasets import is_path
from tasks.own_task import describe_path, own_task
from tasks.task import Task, open_task

HOW_TO_START = (
    "Start the SuperNode with --node-config 'data-path=\"/its/data\"' for data of its own, or with "
    "--node-config 'partition-id=0 num-partitions=4' for a partition of a shared dataset."
)


@dataclass(frozen=True)
class NodeData:
    """Where a deployed node's data and state are."""

    kind: str
    state_dir: Path
    data_path: Path | None = None
    partition_id: int = 0
    num_partitions: int = 0
    data_root: str = ""

    @property
    def identity(self) -> str:
        """The secret that identifies an owner of data; made once, kept on its disk."""
        name = sha256(str(self.data_path).encode()).hexdigest()[:16]
        path = self.state_dir / f"identity-{name}"
        if not path.exists():
            make_private(self.state_dir)
            with suppress(FileExistsError):  # another process of this node was first
                create_private(path, secrets.token_hex(32).encode())
        return path.read_text()


def read_node_data(node_config: Mapping[str, Any]) -> NodeData:
    """Read a SuperNode's node-config; refuse one that is incomplete or contradictory."""
    given = " ".join(f"{key}={value!r}" for key, value in node_config.items()) or "nothing"
    parts = [key for key in ("partition-id", "num-partitions") if key in node_config]
    default = os.environ.get("FEDSUITE_STATE") or Path.home() / ".local" / "state" / "fedsuite"
    state = Path(str(node_config.get("state-dir") or default)).expanduser().absolute()
    if "data-path" in node_config:
        if parts:
            raise UserError(
                f"node-config has data-path and {parts[0]}, which contradict each other: data of "
                "its own, or a partition of a shared dataset. Remove one of them."
            )
        path = Path(str(node_config["data-path"])).expanduser().absolute()
        if not path.exists():
            raise UserError(
                f"invalid value '{path}' for data-path: it does not exist on this node."
            )
        return NodeData(OWN, state, data_path=path)
    if len(parts) < 2:
        raise UserError(
            f"node-config has {given}, and does not name this node's data. {HOW_TO_START}"
        )
    number, count = node_config["partition-id"], node_config["num-partitions"]
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (number, count))
    if not whole or not 0 <= number < count:
        raise UserError(
            f"invalid value '{number}' for partition-id with num-partitions = {count}: ids are "
            "whole numbers from 0, below num-partitions."
        )
    root = str(node_config.get("data-root", ""))
    return NodeData(PARTITION, state, partition_id=number, num_partitions=count, data_root=root)


def describe_node(node: NodeData, config: RunConfig) -> dict[str, Any]:
    """Return what the server may know of this node: who it is, and what data it has."""
    if node.data_path is None:
        count = node.num_partitions
        open_partition(node, dataclasses.replace(config, num_clients=count))
        return {"kind": PARTITION, "partition-id": node.partition_id, "num-partitions": count}
    description = describe_path(node.data_path, config.dataset, config.label_column)
    return {"kind": OWN, "identity": node.identity, "description": description.to_json()}


def open_node_data(
    node: NodeData, config: RunConfig, header: Mapping[str, Any], client: int
) -> Task:
    """Open this node's data for the client it is; refuse to be another client."""
    if node.data_path is None:
        if header["data"] != PARTITION or client != node.partition_id:
            raise UserError(f"This node has partition {node.partition_id} and no other data.")
        return open_partition(node, config)
    if header["data"] != OWN or header["owner"] != owner_name(node.identity):
        raise UserError(f"This node trains only on {node.data_path}, as the client it has been.")
    return own_task(
        node.data_path,
        str(header["schema"]),
        client,
        config.num_clients,
        config.seed,
        config.client_test_fraction,
    )


def open_partition(node: NodeData, config: RunConfig) -> Task:
    """Open a shared dataset, from this node's own mirror if it has one."""
    root = node.data_root or config.data_root
    place = absolute_path(str(Path(root, config.dataset)))
    if is_path(config.dataset) and not _is_inside(place, node.data_root):
        raise UserError(
            f"invalid value '{config.dataset}' for dataset: this node reads files only inside the "
            "data-root of its own node-config. Start the SuperNode with data-root, too."
        )
    return open_task(dataclasses.replace(config, data_root=root).task)


def _is_inside(path: Path, folder: str) -> bool:
    return bool(folder) and path.resolve().is_relative_to(absolute_path(folder).resolve())


def make_private(folder: Path) -> None:
    """Make a folder that only this user can read; leave an existing one as it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(
            f"invalid value '{folder}' for state-dir: {error.strerror}. Choose a folder that this "
            "node can write to."
        ) from None
