"""Federations with one node more than a run should have: misconfigured, or hostile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from faults.watched import CLIENTS
from fedsuite.config import parse
from fedsuite.core.protocol import owner_name
from fedsuite.deploy.federation import Federation, SuperNode, plan
from fedsuite.nodes.identity import read_node_data
from tasks.datasets import DATASETS
from tasks.sources import find_source
from tasks.task import open_task

STRANGER = CLIENTS
PYTHON_PATH = [str(Path(__file__).parent / "hostile"), os.environ.get("PYTHONPATH", "")]
HOSTILE = ["env", f"PYTHONPATH={os.pathsep.join(filter(None, PYTHON_PATH))}"]  # how to start one


def with_misconfigured(folder: Path, seed: int, **options: Any) -> Federation:
    """Plan a federation whose last node says that it has the only partition."""
    planned = plan(folder, CLIENTS + 1, **options)
    *others, last = planned.nodes
    nodes = [replace(n, config=n.config | {"num-partitions": CLIENTS}) for n in others]
    alone: dict[str, str | int] = {"partition-id": 0, "num-partitions": 1}
    return replace(planned, nodes=(*nodes, replace(last, config=last.config | alone)))


def with_hostile(folder: Path, seed: int, **options: Any) -> Federation:
    """Plan a federation whose nodes own the rows that partitions would give them.

    Nodes with rows of their own are numbered by the hash of their secrets, so the partitions are
    laid out in that order: an undisturbed run has the accuracy of one on partitions.
    """
    places = [folder / "rows" / str(number) for number in range(CLIENTS + 1)]
    for place in places:
        place.mkdir(parents=True)
    planned = plan(folder, CLIENTS + 1, data=places, **options)
    config = parse({"num-clients": CLIENTS, "seed": seed})
    rows = find_source(DATASETS[config.dataset], "").read().train
    parts = open_task(config.task).split.train
    others = sorted(planned.nodes[:CLIENTS], key=_owner)
    for node, part in zip((*others, planned.nodes[STRANGER]), (*parts, parts[0]), strict=True):
        pq.write_table(rows.take(part), Path(str(node.config["data-path"])) / "rows.parquet")
    return planned


def _owner(node: SuperNode) -> str:
    return owner_name(read_node_data(node.config).identity)
