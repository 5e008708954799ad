"""Deployed nodes without processes: each has a node-config and may join and leave."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from flwr.app import Context, Error, Message, RecordDict
from PIL import Image
from sklearn.datasets import load_digits

from fedsuite.core.files import read_lines
from fedsuite.engines.inline import InlineGrid
from fedsuite.flower.compat import make_run

NODE_GONE = 3


class DeployedGrid(InlineGrid):
    """SuperNodes that answer at once.

    ``before(grid, round)`` runs ahead of a round's messages, ``after`` when its scores are in.
    """

    def __init__(
        self,
        *node_configs: dict[str, Any],
        before: Callable[[DeployedGrid, int], None] = lambda grid, server_round: None,
        after: Callable[[DeployedGrid, int], None] = lambda grid, server_round: None,
    ) -> None:
        super().__init__(0)
        self._run = make_run(self._run.run_id, simulated=False)
        self.before, self.after = before, after
        self.heard: list[Message] = []
        self.rounds = 0
        self.next_id = 5000
        for config in node_configs:
            self.join(**config)

    def join(self, node_id: int | None = None, **node_config: Any) -> int:
        """Connect a node; keys are written with underscores."""
        if node_id is None:
            self.next_id, node_id = self.next_id + 1, self.next_id + 1
        config = {key.replace("_", "-"): value for key, value in node_config.items()}
        self._contexts[node_id] = Context(
            run_id=1, node_id=node_id, node_config=config, state=RecordDict(), run_config={}
        )
        return node_id

    def leave(self, node_id: int) -> dict[str, Any]:
        """Disconnect a node; return what it was started with."""
        config = self._contexts.pop(node_id).node_config
        return {key.replace("-", "_"): value for key, value in config.items()}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        kinds = {message.metadata.message_type for message in sent}
        if "train" in kinds:
            self.rounds += 1
            self.before(self, self.rounds)
        numbers = super().push_messages(sent)
        if "evaluate" in kinds:
            self.after(self, self.rounds)
        return numbers

    def _handle(self, message: Message) -> Message:
        self.heard.append(message)
        if message.metadata.dst_node_id not in self._contexts:
            return Message(Error(NODE_GONE, "node unavailable"), reply_to=message)
        return super()._handle(message)


def partitions(count: int, state: Path) -> list[dict[str, Any]]:
    """Node-configs of a shared dataset's partitions."""
    return [
        {"partition_id": i, "num_partitions": count, "state_dir": str(state)} for i in range(count)
    ]


def digits_rows(low: int, high: int) -> pa.Table:
    """Some digits as the hub has images."""
    digits = load_digits()
    images = []
    for pixels in digits.images[low:high].astype(np.uint8):
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, format="png")
        images.append({"bytes": png.getvalue()})
    return pa.table({"image": images, "label": digits.target[low:high]})


def digits_parquet(path: Path, low: int, high: int) -> Path:
    """Write some digits to a parquet file."""
    pq.write_table(digits_rows(low, high), path)
    return path


def visits_csv(path: Path, seed: int, rows: int = 60, **columns: Any) -> Path:
    """Write a table of two numbers and a word; who is older and comes by bus stays."""
    draw = np.random.default_rng(seed)
    age = draw.uniform(20, 80, rows)
    way = draw.choice(["bus", "car"] if seed % 2 else ["bus", "walk"], rows)
    stays = np.where(age + 20 * (way == "bus") > 60, "yes", "no")
    table = {"age": age, "pulse": draw.normal(70, 10, rows), "way": way, "label": stays}
    pyarrow.csv.write_csv(pa.table(table | columns), path)
    return path


def own_nodes(folder: Path, count: int = 3) -> list[dict[str, Any]]:
    """Node-configs of nodes with 80 digits of their own each."""
    paths = [digits_parquet(folder / f"{i}.parquet", 80 * i, 80 * i + 80) for i in range(count)]
    return [{"data_path": str(path), "state_dir": str(folder / "state")} for path in paths]


def notes(folder: Path) -> str:
    """All that a run noted of its rounds."""
    return " ".join(str(row.get("note", "")) for row in read_lines(folder / "history.jsonl"))
