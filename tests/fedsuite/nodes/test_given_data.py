"""Deployed nodes and data that go by a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from federations import DeployedGrid, partitions, visits_csv

from fedsuite.config import parse
from fedsuite.core.settings import UserError
from fedsuite.nodes.identity import describe_node, read_node_data


@pytest.mark.usefixtures("no_waiting")
def test_a_file_in_each_nodes_data_root_gives_the_inline_bits(
    tmp_path: Path, experiment: Callable[..., Path]
) -> None:
    for name in ("server", "node"):
        (tmp_path / name).mkdir()
        visits_csv(tmp_path / name / "visits.csv", 1)
    nodes = [n | {"data_root": str(tmp_path / "node")} for n in partitions(2, tmp_path / "state")]
    settings = {"dataset": "visits.csv", "data_root": str(tmp_path / "server"), "model": "auto"}
    folders = [
        experiment(grid=grid, num_clients=2, min_train_clients=2, **settings)
        for grid in (DeployedGrid(*nodes), None)
    ]
    models = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert models[0] == models[1]


def test_a_node_reads_files_only_inside_its_own_data_root(tmp_path: Path) -> None:
    """The server names the file; which folder it is in, the node alone says."""
    (tmp_path / "mine").mkdir()
    rows = visits_csv(tmp_path / "mine" / "visits.csv", 1)
    visits_csv(tmp_path / "secret.csv", 2)
    node = {"partition-id": 0, "num-partitions": 2, "state-dir": str(tmp_path / "state")}
    own = read_node_data(node | {"data-root": str(tmp_path / "mine")})
    root = {"data-root": str(tmp_path)}
    for values in (root | {"dataset": "visits.csv"}, {"dataset": str(rows)}):
        config = parse(values | {"partition": "iid", "num-clients": 2})
        assert describe_node(own, config)["kind"] == "partition"
    refused = [(own, "../secret.csv", root), (own, str(tmp_path / "secret.csv"), {})]
    for asked, name, more in [*refused, (read_node_data(node), str(rows), {})]:
        config = parse(more | {"dataset": name, "partition": "iid", "num-clients": 2})
        with pytest.raises(UserError, match="this node reads files only inside the data-root"):
            describe_node(asked, config)


@pytest.mark.parametrize("name", ["hf:owner/name", "visits.csv"])
def test_data_of_a_nodes_own_is_not_described_by_files_or_the_hub(
    tmp_path: Path, name: str
) -> None:
    node = {"data-path": str(visits_csv(tmp_path / "a.csv", 1)), "state-dir": str(tmp_path)}
    with pytest.raises(UserError, match=r"this node has data of its own. Use dataset=own\."):
        describe_node(read_node_data(node), parse({"dataset": name}))
