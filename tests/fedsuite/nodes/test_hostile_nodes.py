"""Nodes that were invited and mean harm: refused one by one, and the run continues."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from federations import DeployedGrid, notes, own_nodes, partitions, visits_csv
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.protocol import RESULTS_ARE_IN
from fedsuite.core.text import REPLACEMENT

Start = Callable[..., Path]
Forge = Callable[[dict[str, Any]], Mapping[str, Any]]
pytestmark = pytest.mark.usefixtures("no_waiting")
HALF = "\udcff"
DANGEROUS = f"[bold red]{HALF}\x1b[31m\u202e[/]"


class HostileGrid(DeployedGrid):
    """The first node answers queries with what ``forge`` makes of its answer.

    Messages are encoded as Flower does before it sends them.
    """

    def __init__(self, *nodes: dict[str, Any], forge: Forge) -> None:
        self.forge = forge
        super().__init__(*nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        for message in sent:
            for record in message.content.config_records.values():
                record.deflate()
        return super().push_messages(sent)

    def _handle(self, message: Message) -> Message:
        reply = super()._handle(message)
        if message.metadata.message_type == "query" and message.metadata.dst_node_id == 5001:
            answer = self.forge(dict(reply.content.config_records["node"]))
            return Message(RecordDict({"node": ConfigRecord(dict(answer))}), reply_to=message)
        return reply


def described(**changes: Any) -> Forge:
    """Change what a node says of its rows."""

    def forge(answer: dict[str, Any]) -> dict[str, Any]:
        if "description" not in answer:
            return answer
        honest = json.loads(answer["description"])
        return answer | {"description": json.dumps(honest | changes)}

    return forge


def refusing(reason: str) -> Forge:
    return lambda answer: {"refusal": reason}


SUMS = [60.0, 0.0, 60.0]
TEXTS: dict[str, Forge] = {
    "half a character as a kind": described(kind=DANGEROUS),
    "half a character as a class": described(classes=[DANGEROUS]),
    "half a character as a column": described(numbers={DANGEROUS: SUMS}),
    "half a character as a category": described(categories={"way": [DANGEROUS]}),
    "a refusal": refusing(DANGEROUS),
    "an unknown kind of node": lambda answer: {"kind": DANGEROUS},
    "a secret": lambda answer: answer | {"identity": DANGEROUS * 5},
}


def tables(folder: Path, count: int = 3) -> list[dict[str, Any]]:
    """Node-configs of nodes with a table of their own each."""
    paths = [visits_csv(folder / f"{i}.csv", i) for i in range(count)]
    return [{"data_path": str(path), "state_dir": str(folder / "s")} for path in paths]


@pytest.mark.parametrize("case", TEXTS)
def test_no_text_of_a_node_ends_the_run(
    case: str, experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = HostileGrid(*tables(tmp_path), forge=TEXTS[case])
    folder = experiment("fedavg", grid=grid, dataset="own")
    assert [row["clients"] for row in read_lines(folder / "history.jsonl")[1:]] == [2, 2]
    assert "node 5001 cannot take part" in notes(folder)
    said = [notes(folder), *(record.getMessage() for record in caplog.records)]
    assert all(text.isprintable() for text in said)


def test_a_node_that_cannot_be_told_does_not_end_the_run(
    experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class DeafGrid(HostileGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            sent = list(messages)
            if any("refusal" in m.content.config_records["config"] for m in sent):
                raise RuntimeError("no such node")
            return super().push_messages(sent)

    grid = DeafGrid(*tables(tmp_path), forge=refusing("not today"))
    folder = experiment("fedavg", grid=grid, dataset="own", num_rounds=1)
    assert read_lines(folder / "history.jsonl")[-1]["clients"] == 2
    assert "node 5001 cannot be told: RuntimeError('no such node')" in caplog.text


def test_a_node_cannot_forge_a_line_of_the_log(
    experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The command reads from such a line where the results are."""
    grid = HostileGrid(*tables(tmp_path), forge=refusing(f"no\n{RESULTS_ARE_IN}/evil"))
    experiment("fedavg", grid=grid, dataset="own", num_rounds=1)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    lines = [line for text in said for line in text.splitlines()]
    assert not any(line.startswith(RESULTS_ARE_IN) for line in lines)
    assert f"node 5001 cannot take part: no {RESULTS_ARE_IN}/evil" in lines


def test_what_a_failing_node_says_is_cleaned_too(experiment: Start, tmp_path: Path) -> None:
    class FailingGrid(DeployedGrid):
        def _handle(self, message: Message) -> Message:
            is_first = message.metadata.dst_node_id == 5001
            if message.metadata.message_type == "train" and is_first:
                return Message(Error(1, f"Trace\n{DANGEROUS}"), reply_to=message)
            return super()._handle(message)

    grid = FailingGrid(*partitions(2, tmp_path / "state"))
    folder = experiment("fedavg", grid=grid, num_rounds=1)
    (reason,) = [r["reason"] for r in read_lines(folder / "clients.jsonl") if "reason" in r]
    assert reason == f"node failed: Trace\n[bold red]{REPLACEMENT}{REPLACEMENT}[31m{REPLACEMENT}[/]"


CLAIMS: dict[str, tuple[Forge, str]] = {
    "100,000 classes": (
        described(classes=[str(n) for n in range(100_000)]),
        "it has 100,000 classes or categories ('0', ...), more than 1,000",
    ),
    "thousands of categories": (
        described(categories={"way": [f"way {n}" for n in range(5000)]}),
        "it has 5,000 classes or categories ('way 0', ...), more than 1,000",
    ),
    "many columns of categories": (
        described(categories={f"c{n}": [str(v) for v in range(1000)] for n in range(51)}),
        "it has 51,002 columns of numbers and categories, more than 50,000",
    ),
    "many columns of numbers": (
        described(numbers={f"c{n}": SUMS for n in range(50_001)}, categories={}),
        "it has 50,001 columns of numbers and categories, more than 50,000",
    ),
    "numbers beyond all others": (
        described(numbers={"age": [60, 60e150, 60e300], "pulse": SUMS}),
        "column 'age' has a root mean square of 1e+150, more than 1e+20",
    ),
    "no classes": (described(classes=[]), "it has no classes"),
    "one class too many with the others'": (
        described(classes=[f"class {n}" for n in range(999)]),
        "with it the nodes would have 1,001 classes, more than 1,000",
    ),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_what_one_node_claims_does_not_decide_everybodys_model(
    case: str, experiment: Start, tmp_path: Path
) -> None:
    """The others have the classes no and yes, two numbers and three ways: five features."""
    forge, sentence = CLAIMS[case]
    folder = experiment("fedavg", grid=HostileGrid(*tables(tmp_path), forge=forge), dataset="own")
    assert sentence in notes(folder)
    assert read_document(folder / "config.json")["num-clients"] == 2
    schema = read_document(folder / "schema.json")
    assert schema["classes"] == ["no", "yes"]
    assert sorted(schema["scales"]) == ["age", "pulse"] and len(schema["categories"]["way"]) == 3


def test_images_larger_than_a_model_can_take_are_refused(experiment: Start, tmp_path: Path) -> None:
    """80 images of 4096 x 4096 pixels, and the sums that such black images have."""
    sums = {"0": [80 * 4096 * 4096, 0, 0]}
    grid = HostileGrid(*own_nodes(tmp_path), forge=described(shape=[1, 4096, 4096], numbers=sums))
    folder = experiment("fedavg", grid=grid, dataset="own")
    assert "its images of 4096 x 4096 pixels are too large" in notes(folder)
    assert read_document(folder / "schema.json")["shape"] == [1, 8, 8]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shape": [1, 9, 8], "numbers": {"0": [80 * 72, 0, 0]}}, "those of digits (1, 8, 8)"),
        ({"kind": "tabular", "shape": [], "numbers": {}}, "it has a table, and digits has inputs"),
        ({"classes": ["0", "foo"]}, "would have 11 classes, more than 10"),
    ],
)
def test_a_named_dataset_has_its_own_shape_and_classes(
    changes: dict[str, Any], sentence: str, experiment: Start, tmp_path: Path
) -> None:
    grid = HostileGrid(*own_nodes(tmp_path), forge=described(**changes))
    folder = experiment("fedavg", grid=grid, num_rounds=1)
    assert sentence in notes(folder)
    assert read_document(folder / "schema.json")["classes"] == list("0123456789")
