"""Runs whose clients drop out and are slow: for every algorithm, and the same after a resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithms import OWN_CLIENTS
from flwr.app import Message

from fedsuite import registry
from fedsuite.core import messages, seeds
from fedsuite.core.compression import Compression
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.messages import pack_compressed
from fedsuite.core.vector_files import VectorFiles
from fedsuite.engines.inline import InlineGrid
from fedsuite.records.checkpoint import load_checkpoint
from fedsuite.records.reader import read_run

Experiment = Callable[..., Path]
REAL: dict[str, Any] = {"dropout": 0.5, "stragglers": 1.0, "straggler_min": 0.2, "num_clients": 6}


def dropped(number: int, clients: int = 6, share: float = 0.5) -> list[int]:
    """Return who drops out in a round, with seed 0."""
    draws = {c: seeds.generator(0, "dropout", number, c).random() for c in range(clients)}
    return [client for client, value in draws.items() if value < share]


def rows(folder: Path, **wanted: Any) -> list[dict[str, Any]]:
    lines = read_lines(folder / "clients.jsonl")
    return [row for row in lines if all(row.get(k) == v for k, v in wanted.items())]


@pytest.mark.parametrize("algo", OWN_CLIENTS)
def test_every_algorithm_trains_with_those_that_are_left(algo: str, experiment: Experiment) -> None:
    """FedRep, which counts the steps of its head too, takes none of these here."""
    own = {"fedrep.head-epochs": 0} if algo == "fedrep" else {}
    folder = experiment(algo, local_steps=10, num_rounds=1, seed=0, **REAL, **own)
    lost = [row["client"] for row in rows(folder, status="dropped out")]
    assert lost == dropped(1) and 0 < len(lost) < 6
    trained = rows(folder, phase="train", status="ok")
    assert [row["client"] for row in trained] == [c for c in range(6) if c not in lost]
    assert all(2 <= row["steps"] <= 10 for row in trained)
    assert min(row["steps"] for row in trained) < 10


def test_who_drops_out_is_no_failure(experiment: Experiment) -> None:
    folder = experiment(num_rounds=2, **REAL)
    history = read_lines(folder / "history.jsonl")
    counts = [(row["clients"], row["failed"], row["dropped_out"]) for row in history[1:]]
    assert counts == [(6 - len(dropped(n)), 0, len(dropped(n))) for n in (1, 2)]
    summary = read_document(folder / "summary.json")
    assert (summary["failed_replies"], summary["missing_updates"]) == (0, 0.0)
    assert read_run(folder).exit_status == 0


def test_rounds_in_which_all_drop_out_keep_the_model(experiment: Experiment) -> None:
    assert all(len(dropped(n, 2, 0.99)) == 2 for n in range(1, 5))
    folder = experiment(num_rounds=4, num_clients=2, dropout=0.99)
    history = read_lines(folder / "history.jsonl")
    assert read_run(folder).exit_status == 0 and len(history) == 5
    assert len({(row["accuracy"], row["loss"]) for row in history}) == 1
    assert "0 valid replies" in history[-1]["note"]


def test_clients_that_fail_still_end_a_run_in_which_others_drop_out(experiment: Experiment) -> None:
    with pytest.raises(Exception, match="nobody is home"):
        experiment("faulty:ALL", num_rounds=9, **REAL)


class CutGrid(InlineGrid):
    """Fails in its third round."""

    left = 3

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self.left -= 1
        if self.left < 0:
            raise ConnectionAbortedError
        return super().send_and_receive(messages, timeout=timeout)


def test_a_resume_and_more_nodes_give_the_same_bits(experiment: Experiment) -> None:
    settings = {**REAL, "num_rounds": 3}
    whole = experiment("scaffold", InlineGrid(3), run_name="whole", **settings)
    with pytest.raises(ConnectionAbortedError):
        experiment("scaffold", CutGrid(), run_name="cut", **settings)
    cut = experiment("scaffold", run_name="cut", resume=True)
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


SENDERS = [name for name in OWN_CLIENTS if "update" in registry.find(name).client.sends]


@pytest.mark.parametrize("kind", ["int8", "top-k"])
@pytest.mark.parametrize("algo", SENDERS)
def test_compressed_updates_take_fewer_bytes(algo: str, kind: str, experiment: Experiment) -> None:
    """Of P numbers top-k sends 8 bytes for a tenth, int8 a byte for each, and 4 beside them."""
    small = {"num_rounds": 1, "num_clients": 2, "local_steps": 1}
    whole, less = experiment(algo, **small), experiment(algo, compression=kind, **small)
    size = model_size(whole)
    plain, sent = (rows(folder, status="ok", phase="train")[0] for folder in (whole, less))
    count = plain["upload_bytes"] // (4 * size)
    each = size + 4 if kind == "int8" else 8 * math.ceil(size / 10)
    assert count >= 1
    assert sent["upload_bytes"] == plain["upload_bytes"] + count * (each - 4 * size)


def model_size(folder: Path) -> int:
    """Return the number of parameters of a run's model, by its checkpoint."""
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None
    return int(checkpoint.model.size)


@pytest.mark.parametrize("kind", ["int8", "top-k"])
def test_vectors_in_messages_and_by_reference_are_the_same_bits(
    kind: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = experiment("scaffold", compression=kind)
    sent: list[str] = []

    def note(vector: np.ndarray, form: Compression) -> Any:
        sent.append(form.kind)
        return pack_compressed(vector, form)

    monkeypatch.setattr(messages, "pack_compressed", note)
    monkeypatch.setattr(VectorFiles, "of", lambda header: None)
    alone = experiment("scaffold", compression=kind)
    assert sent == [kind] * 8  # four clients in two rounds
    assert (alone / "model.safetensors").read_bytes() == (shared / "model.safetensors").read_bytes()
    assert [r["upload_bytes"] for r in rows(alone)] == [r["upload_bytes"] for r in rows(shared)]


def test_none_of_it_by_default(experiment: Experiment) -> None:
    folder = experiment(num_rounds=1)
    assert not rows(folder, status="dropped out")
    assert "dropped_out" not in read_lines(folder / "history.jsonl")[1]
