"""How a run on deployed nodes begins: who is there, what data they have, what is agreed.

In a simulation the settings say how many clients there are and what each has. Deployed, the nodes
do: every node is one client, and where nodes own their data the server learns its form from them.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedsuite import registry
from fedsuite.checkpoint import Checkpoint
from fedsuite.config import PERSONAL_TEST_FRACTION, RunConfig, parse
from fedsuite.record import write_atomically
from fedsuite.settings import UserError
from strategies.members import OWN, Answer, Members, pull
from tasks.own_data import Description, Schema, agree, read_description, read_schema
from tasks.own_task import server_task
from tasks.task import Task, open_task

log = logging.getLogger("fedsuite")
SIMULATION = "flwr-simulation"
SCHEMA = "schema.json"
MODELS = {"image": "cnn2", "tabular": "mlp"}
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Scene:
    """What a run begins with; ``told`` goes to every deployed node with each order."""

    config: RunConfig
    task: Task
    members: Members | None = None
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        """What the record calls the engine, if not by the name it was called with."""
        return "" if self.members is None else "deployed"

    def sizes(self) -> dict[int, int]:
        """Return how many rows each client trains on, as far as is known."""
        if self.members is None or self.members.kind != OWN:
            return {c: len(rows) for c, rows in enumerate(self.task.split.train)}
        answers, share = self.members.answers, 1 - self.config.client_test_fraction
        return {
            client: round(share * read_description(answers[client].description).rows)
            if client in answers
            else 1
            for client in range(self.members.count)
        }

    def save(self, folder: Path) -> None:
        """Keep what was agreed, for a resume and for who reads the model later."""
        if "schema" in self.told:
            write_atomically(folder / SCHEMA, self.told["schema"].encode())


def is_deployed(grid: Grid) -> bool:
    """Say whether nodes are real SuperNodes rather than simulated ones."""
    return grid.run.primary_task_type != SIMULATION


def gather(config: RunConfig, grid: Grid, folder: Path, checkpoint: Checkpoint | None) -> Scene:
    """Wait for nodes and settle what the run is with them."""
    known: Mapping[str, Any] = checkpoint.strategy if checkpoint is not None else {}
    path = folder / SCHEMA
    schema = read_schema(path.read_text()) if config.resume and path.exists() else None
    members = Members(
        {"run": without_paths(config).to_json()},
        known.get("members"),
        _checker(schema),
        form_in_words,
        config.num_clients if config.resume and schema is None else 0,
    )
    log.info("waiting for at least %d nodes", config.min_train_clients)
    members.gather(grid, config.min_train_clients, config.round_timeout)
    if members.kind != OWN:
        config = settled(config, num_clients=members.places)
        return Scene(config, open_task(config.task), members, {"data": members.kind})
    if schema is None:
        schema = agree(config.dataset, config.label_column, _descriptions(members))
        members.check = _checker(schema)
    log.info("%d classes, inputs %s", len(schema.classes), schema.data_shape.input_shape)
    count = len(known["members"]) if known.get("members") else members.count
    return own_scene(settled(config, num_clients=count), schema, members)


def own_scene(config: RunConfig, schema: Schema, members: Members) -> Scene:
    """Settle a run whose data is the nodes' own."""
    config = settled(config, partition=OWN)
    if config.model == "auto":
        config = settled(config, model=MODELS[schema.kind])
    task = server_task(
        schema, config.server_data, config.data_root, config.probe_per_class, config.seed
    )
    if registry.find(config.algo).strategy.needs_probe and not len(task.split.probe):
        raise UserError(
            f"{config.algo} needs a probe set on the server, and the nodes' own rows never come "
            "there. Give server-data=FILE, rows on the SuperLink's machine."
        )
    if not len(task.split.test) or config.personal_eval == "on":
        fraction = config.client_test_fraction or PERSONAL_TEST_FRACTION
        config = settled(config, personal_eval="on", client_test_fraction=fraction)
    return Scene(config, task, members, {"data": OWN, "schema": schema.to_json()})


def without_paths(config: RunConfig) -> RunConfig:
    """Return the settings as nodes may know them: without the server's own folders."""
    own = dataclasses.replace(config, results_dir="", server_data="")
    return dataclasses.replace(own, data_root="") if config.partition == OWN else own


def exchange(grid: Grid, messages: list[Message], seconds: float) -> list[Message]:
    """Send messages and wait for their replies, so long at the most."""
    numbers = grid.push_messages(messages)
    waiting = {
        number: message.metadata.dst_node_id
        for number, message in zip(numbers, messages, strict=True)
        if number
    }
    replies: list[Message] = []
    deadline = time.monotonic() + seconds
    while waiting:
        for number, node in list(waiting.items()):
            for reply in pull(grid, number, node):
                del waiting[number]
                replies.append(reply)
        if not waiting or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    return replies


def settled(config: RunConfig, **changes: Any) -> RunConfig:
    """Change settings and check them all once more."""
    return parse(config.flat() | {name.replace("_", "-"): v for name, v in changes.items()})


def _descriptions(members: Members) -> dict[str, Description]:
    return {
        f"client {client}": read_description(answer.description)
        for client, answer in sorted(members.answers.items())
    }


def form_in_words(answer: Answer) -> str:
    """Say what rows a node has."""
    description = read_description(answer.description)
    if description.kind == "image":
        return "images"
    numbers, words = sorted(description.numbers), sorted(description.categories)
    return f"columns of numbers {numbers} and of words {words}"


def _checker(schema: Schema | None) -> Callable[[Answer], str]:
    """Return what looks at a newcomer's description; before anything is agreed, at its form."""

    def check(answer: Answer) -> str:
        try:
            description = read_description(answer.description)
        except ValueError as error:
            return str(error)
        if schema is None:
            return ""
        if description.kind != schema.kind:
            return f"its rows are of kind '{description.kind}', the others' '{schema.kind}'"
        strange = sorted(set(description.classes) - set(schema.classes))
        if strange:
            return f"it has the class '{strange[0]}', which the others did not agree on"
        if schema.kind != "tabular":
            return ""
        missing = sorted(set(schema.scales) - set(description.numbers))
        missing += sorted(set(schema.categories) - {*description.numbers, *description.categories})
        kind = "of numbers " * bool(missing and missing[0] in schema.scales)
        return f"it has no column {kind}'{missing[0]}'" if missing else ""

    return check
