"""Whole runs whose vectors are in files: the same bits as in messages, and nothing is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from lossy import LossyGrid
from safetensors.numpy import load_file

from fedsuite import registry
from fedsuite.core import vector_files
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.messages import REFERENCE
from fedsuite.core.settings import RunFailed
from fedsuite.engines.inline import InlineGrid
from fedsuite.nodes.simulated import SimulatedNodes

Experiment = Callable[..., Path]
SMALL = {"num_clients": 3, "local_steps": 1, "personal_eval": "on", "client_test_fraction": 0.25}


class WatchingGrid(InlineGrid):
    """Notes how many bytes arrays in messages have, by whether they are references."""

    def __init__(self, num_nodes: int = 2) -> None:
        super().__init__(num_nodes)
        self.bytes = {True: 0, False: 0}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        replies = list(super().send_and_receive(sent, timeout=timeout))
        for message in [*sent, *replies]:
            for record in message.content.array_records.values():
                for array in record.values():
                    self.bytes[array.stype == REFERENCE] += len(array.data)
        return replies


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for shared memory."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(vector_files, "SHARED_MEMORY", folder)
    return folder


def bits(folder: Path) -> dict[str, Any]:
    """Return every array that a run has written, and its numbers that are no times."""
    found: dict[str, Any] = {
        f"{path.relative_to(folder)} {name}": (array.dtype, array.shape, array.tobytes())
        for path in sorted(folder.rglob("*.safetensors"))
        for name, array in load_file(path).items()
    }
    for name in ("history.jsonl", "clients.jsonl"):
        rows = read_lines(folder / name)
        found[name] = [{k: v for k, v in r.items() if "seconds" not in k} for r in rows]
    return found


def by_message(patch: pytest.MonkeyPatch) -> None:
    """Let simulated nodes exchange vectors as deployed ones do."""
    patch.setattr(SimulatedNodes, "vectors", property(lambda nodes: nodes._by_message))


@pytest.mark.slow
@pytest.mark.usefixtures("small_resnet")
@pytest.mark.parametrize("model", ["mlp", "resnet18"])
@pytest.mark.parametrize("algo", sorted(registry.ALGORITHMS))
def test_files_and_messages_give_the_same_bits(
    algo: str, model: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, memory: Path
) -> None:
    """What is recorded is the same too, bytes up and down among it; one of three attacks.

    Vectors of no length are in messages: they are no more than headers of 128 bytes.
    """
    grid = WatchingGrid()
    attacked = {"attack": "sign-flip", "attackers": "1", **SMALL}
    first = bits(experiment(algo, grid, model=model, **attacked))
    assert grid.bytes[False] <= 12 * 128
    assert (grid.bytes[True] > 0) == bool(registry.find(algo).client.receives)
    by_message(monkeypatch)
    second = bits(experiment(algo, model=model, **attacked))
    assert first == second and not list(memory.iterdir())


def test_messages_carry_references_alone_and_the_folders_are_removed(
    experiment: Experiment, memory: Path
) -> None:
    grid = WatchingGrid()
    folder = experiment("fedavg", grid, num_rounds=3, local_steps=1)
    assert grid.bytes[False] == 0 < grid.bytes[True] < 10_000
    assert not list(memory.iterdir()) and list(folder.parent.iterdir()) == [folder]
    assert read_document(folder / "summary.json")["upload_bytes"] > 100_000


@pytest.mark.parametrize("algo", ["fedavg", "fedamp"])
def test_what_failing_clients_lack_is_no_row(
    algo: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client 1 raises and client 2 sends NaN: the others' rows are as they are in messages."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "helpers"))
    first = bits(experiment(f"troubled:{algo}", local_steps=1))
    assert [row["clients"] for row in first["history.jsonl"][1:]] == [2, 2]
    assert any("NaN" in row.get("reason", "") for row in first["clients.jsonl"])
    by_message(monkeypatch)
    assert bits(experiment(f"troubled:{algo}", local_steps=1)) == first


def test_a_lost_node_writes_its_rows_again(experiment: Experiment) -> None:
    whole = experiment(local_steps=1)
    grid = LossyGrid(2, lambda kind, rnd, node, tries: (kind, node, tries) == ("train", 1, 1))
    again = experiment(grid=grid, local_steps=1)
    name = "model.safetensors"
    assert grid.tries["train", 2, 1] == 2
    assert (whole / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_full_disk_ends_the_run_with_a_sentence(
    after: int, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, memory: Path
) -> None:
    """As the server writes the model, as a client writes its row, and in a later round."""
    plain, calls = os.pwrite, []

    def full(file: int, data: Any, at: int) -> int:
        calls.append(at)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    said = r"cannot write '.*memory/.*': No space left on device. Free some space there"
    with pytest.raises(RunFailed, match=said + ", then resume the run"):
        experiment(num_clients=2, local_steps=1)
    assert not list(memory.iterdir())
