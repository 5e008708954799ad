"""The nodes that should not take part: how they are configured, and what they claim."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from federations import DeployedGrid, own_nodes
from flwr.clientapp import ClientApp

from faults.catalogue import FAULTS
from faults.strangers import HOSTILE, STRANGER, with_hostile, with_misconfigured
from fedsuite.core.protocol import owner_name
from fedsuite.nodes import deployed
from fedsuite.nodes.identity import read_node_data


def test_a_misconfigured_node_is_one_more_and_waits_for_nobody(tmp_path: Path) -> None:
    nodes = with_misconfigured(tmp_path, 1).nodes
    given = [(node.config["partition-id"], node.config["num-partitions"]) for node in nodes]
    assert given == [(0, 3), (1, 3), (2, 3), (0, 1)]
    assert set(FAULTS["misconfigured"].waiting) == {0, 1, 2}


def test_the_rows_of_a_hostile_nodes_federation_are_those_of_partitions(tmp_path: Path) -> None:
    """In the order of the nodes' names at the server, client 0 first; the stranger copies it."""
    nodes = with_hostile(tmp_path, 1).nodes
    honest = sorted(nodes[:STRANGER], key=lambda n: owner_name(read_node_data(n.config).identity))
    sizes = [
        pq.read_metadata(Path(str(node.config["data-path"])) / "rows.parquet").num_rows
        for node in (*honest, nodes[STRANGER])
    ]
    assert sum(sizes[:STRANGER]) == 1437 and sizes[STRANGER] == sizes[0]


def test_a_hostile_node_claims_what_is_refused(
    experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here all nodes are hostile, so that nobody is left."""
    monkeypatch.setattr(ClientApp, "__call__", ClientApp.__call__)  # restored after the test
    monkeypatch.setattr(deployed, "SETTLE_SECONDS", 0.0)
    (folder, *_) = HOSTILE[1].removeprefix("PYTHONPATH=").split(":")
    runpy.run_path(f"{folder}/sitecustomize.py")
    with pytest.raises(ConnectionError, match="it has 100,000 classes or categories"):
        experiment("fedavg", grid=DeployedGrid(*own_nodes(tmp_path, 1)))
