"""The setup of a run: its final settings, the server's task, the nodes.

In a simulation the settings determine the number of clients and their data. When deployed, the
nodes do: every node is one client, and if nodes have data of their own, the server learns its
schema from them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedsuite import registry
from fedsuite.config import PERSONAL_TEST_FRACTION, RunConfig, parse, without_paths
from fedsuite.core.needs import Idle, remedy
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError, invalid
from fedsuite.core.text import counted
from fedsuite.flower.compat import is_simulated
from fedsuite.nodes.contract import IDENTITIES, STATE_ROUNDS, Nodes
from fedsuite.nodes.deployed import DeployedNodes
from fedsuite.nodes.queries import Answer
from fedsuite.nodes.simulated import SimulatedNodes
from fedsuite.records.checkpoint import Checkpoint
from fedsuite.records.folder import RunFolder
from tasks.datasets import find_dataset
from tasks.models import AUTO, DEFAULTS
from tasks.own_schema import (
    Description,
    Schema,
    agree,
    excess_claims,
    read_schema,
)
from tasks.own_task import server_task
from tasks.shapes import DataShape
from tasks.task import Task, open_task

log = logging.getLogger("fedsuite")


@dataclass(frozen=True)
class RunSetup:
    """What a run begins with: its final settings, the server's task, and the nodes."""

    config: RunConfig
    task: Task
    nodes: Nodes


def set_up(config: RunConfig, grid: Grid, folder: Path, checkpoint: Checkpoint | None) -> RunSetup:
    """Set up a run: by its settings in a simulation, with the nodes when deployed."""
    if not is_simulated(grid):
        return gather(config, grid, folder, checkpoint)
    refuse_server_data(config, "in a simulation")
    task = open_task(config.task)
    config = with_model(config, task.shape)
    return RunSetup(config, task, SimulatedNodes(_partition_sizes(task)))


def gather(config: RunConfig, grid: Grid, folder: Path, checkpoint: Checkpoint | None) -> RunSetup:
    """Wait for deployed nodes, and set up the run with the data they have."""
    known: Mapping[str, Any] = checkpoint.strategy if checkpoint is not None else {}
    path = RunFolder(folder).schema_file
    schema = read_schema(path.read_text()) if config.resume and path.exists() else None
    nodes = DeployedNodes(
        {"run": without_paths(config).to_json()},
        known.get(IDENTITIES),
        _checker(schema, config.dataset),
        describe_data,
        config.num_clients if config.resume and config.partition != OWN else 0,
        lambda answers: _excess(config.dataset, answers),
        {int(client): number for client, number in known.get(STATE_ROUNDS, {}).items()},
    )
    log.info("waiting for at least %s", counted(config.min_train_clients, "node"))
    nodes.gather(grid, config.min_train_clients, config.round_timeout)
    if nodes.kind != OWN:
        refuse_server_data(config, "on nodes with partitions of a shared dataset")
        config = changed(config, num_clients=nodes.num_partitions)
        task = open_task(config.task)
        config = with_model(config, task.shape)
        nodes.agreed, nodes.rows = {"data": nodes.kind}, lambda c: len(task.split.train[c])
        return RunSetup(config, task, nodes)
    if schema is None:
        schema = agree(config.dataset, config.label_column, _descriptions(nodes))
        nodes.check = _checker(schema, config.dataset)
    log.info("%d classes, inputs %s", len(schema.classes), schema.data_shape.input_shape)
    count = len(known[IDENTITIES]) if known.get(IDENTITIES) else nodes.count
    return own_setup(changed(config, num_clients=count), schema, nodes)


def own_setup(config: RunConfig, schema: Schema, nodes: DeployedNodes) -> RunSetup:
    """Set up a run on the nodes' own data."""
    config = with_model(changed(config, idle="reset", partition=OWN), schema.data_shape)
    check_server_data(config)
    task = server_task(
        schema, config.server_data, config.data_root, config.probe_per_class, config.seed
    )
    if registry.find(config.algo).strategy.needs_probe and not len(task.split.probe):
        raise UserError(
            f"{config.algo} needs a probe set on the server, and the nodes' own rows never leave "
            "them. Give server-data=FILE, rows on the SuperLink's machine."
        )
    if not len(task.split.test) or config.personal_eval == "on":
        fraction = config.client_test_fraction or PERSONAL_TEST_FRACTION
        config = changed(config, personal_eval="on", client_test_fraction=fraction)
    nodes.agreed = {"data": OWN, "schema": schema.to_json()}
    nodes.rows = lambda client: _own_rows(nodes, client, config.client_test_fraction)
    return RunSetup(config, task, nodes)


def with_model(config: RunConfig, shape: DataShape) -> RunConfig:
    """Replace ``auto`` by the usual model for such data, where no dataset names one."""
    return changed(config, model=DEFAULTS[shape.kind]) if config.model == AUTO else config


def refuse_server_data(config: RunConfig, where: str) -> None:
    """Refuse test data of the server where the dataset has its own."""
    if config.server_data and not config.resume:
        instead = "run it on deployed nodes that have data of their own (data-path)"
        raise UserError(remedy("server-data", config.server_data, "", where, instead))


def check_server_data(config: RunConfig) -> None:
    """Refuse test data of the server that are not there."""
    if config.server_data and not os.path.exists(os.path.expanduser(config.server_data)):
        raise invalid(
            "server-data",
            config.server_data,
            "there is no such file or folder on the SuperLink's machine.",
        )


def _own_rows(nodes: DeployedNodes, client: int, test_fraction: float) -> int:
    """Return how many rows a node trains on, by its own description; 1 until it has answered."""
    if client not in nodes.answers:
        return 1
    return round((1 - test_fraction) * nodes.answers[client].data.rows)


def _partition_sizes(task: Task) -> dict[int, int]:
    return {client: len(rows) for client, rows in enumerate(task.split.train)}


def changed(config: RunConfig, idle: Idle = "accept", **changes: Any) -> RunConfig:
    """Change settings and validate all of them again; ``idle`` ones are those without effect."""
    values = config.flat() | {name.replace("_", "-"): v for name, v in changes.items()}
    return parse(values, idle=idle)


def _descriptions(nodes: DeployedNodes) -> dict[str, Description]:
    return {f"client {client}": answer.data for client, answer in sorted(nodes.answers.items())}


def describe_data(answer: Answer) -> str:
    """Return in words what data a node has."""
    description = answer.data
    if description.kind == "image":
        return "images"
    numbers, words = sorted(description.numbers), sorted(description.categories)
    return f"numeric columns {numbers} and categorical columns {words}"


def _excess(dataset: str, answers: Sequence[Answer]) -> dict[int, str]:
    """Return which nodes claim too much beside the others, whoever answered first."""
    in_order = sorted(answers, key=lambda answer: answer.owner)
    return excess_claims(dataset, {a.node_id: a.data for a in in_order})


def _checker(schema: Schema | None, dataset: str) -> Callable[[Answer], str]:
    """Return a check of a node's description: against the schema, once there is one."""
    shape = find_dataset(dataset).input_shape

    def check(answer: Answer) -> str:
        try:
            description = answer.data
        except ValueError as error:
            return str(error)
        if shape and description.kind != "image":
            return f"it has a table, and {dataset} has inputs of the shape {shape}"
        if shape and description.shape != shape:
            return f"its images have the shape {description.shape}, those of {dataset} {shape}"
        if schema is None:
            return ""
        if description.kind != schema.kind:
            return f"its data is of kind '{description.kind}', the other nodes' '{schema.kind}'"
        strange = sorted(set(description.classes) - set(schema.classes))
        if strange:
            return f"it has the class '{strange[0]}', which is not in the agreed schema"
        if schema.kind != "tabular":
            return ""
        missing = sorted(set(schema.scales) - set(description.numbers))
        missing += sorted(set(schema.categories) - {*description.numbers, *description.categories})
        kind = "numeric " * bool(missing and missing[0] in schema.scales)
        return f"it has no {kind}column '{missing[0]}'" if missing else ""

    return check
