"""What holds for every algorithm: it runs, it is measured, and it survives clients that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsuite import registry
from fedsuite.core.files import read_document, read_lines

pytestmark = pytest.mark.slow

Experiment = Callable[..., Path]
ALL = sorted(registry.ALGORITHMS)
KINDS: dict[str, dict[str, Any]] = {
    "everybody": {"num_clients": 3},
    "half of them": {"num_clients": 6, "fraction_train": 0.5},
}


def lines(folder: Path, phase: str) -> list[dict[str, Any]]:
    return [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == phase]


def finite(folder: Path) -> bool:
    """Whether the saved model, the checkpoint and what clients keep hold numbers only."""
    tensors = [t for path in folder.rglob("*.safetensors") for t in load_file(path).values()]
    return bool(tensors) and all(np.isfinite(tensor).all() for tensor in tensors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algo", ALL)
def test_three_rounds_are_run_and_measured(experiment: Experiment, algo: str, kind: str) -> None:
    folder = experiment(algo, num_rounds=3, local_steps=2, **KINDS[kind])
    summary = read_document(folder / "summary.json")
    assert (summary["status"], summary["rounds"]) == ("finished", 3)
    assert summary["failed_replies"] == 0 and finite(folder)
    client = registry.find(algo).client
    history = [row for row in read_lines(folder / "history.jsonl") if row["round"] > 0]
    assert [row["clients"] for row in history] == [3, 3, 3]
    assert all(row["compute_seconds"] > 0 for row in history)
    assert summary["client_compute_seconds"] > 0
    trained = lines(folder, "train")
    assert summary["upload_bytes"] == sum(row["upload_bytes"] for row in trained)
    assert all((row["upload_bytes"] > 0) == bool(client.sends) for row in trained)
    assert (summary["download_bytes"] > 0) == bool(client.receives)
    if client.personal:
        assert 0 <= summary["personal_accuracy"] <= 1
        assert 0 <= summary["personal_worst"] <= summary["personal_best"] <= 1
    if registry.find(algo).strategy.shares_model:
        assert 0 <= summary["final_accuracy"] <= 1


@pytest.mark.parametrize("algo", ALL)
def test_it_goes_on_without_a_client_that_raises_and_one_that_sends_nan(
    experiment: Experiment, algo: str
) -> None:
    """Clients 1 and 2 fail in all three rounds; the others are counted, and all are scored.

    The second attacks, with noise in place of NaN; so does the last, which counts. Krum needs three
    to choose from.
    """
    clients = 5 if "krum" in algo else 4
    good = [client for client in range(clients) if client not in (1, 2)]
    name = f"troubled:{algo.replace('-', '_')}"
    attack = {"attack": "gaussian", "attackers": f"2,{clients - 1}"}
    folder = experiment(name, num_rounds=3, num_clients=clients, local_steps=2, **attack)
    summary = read_document(folder / "summary.json")
    assert (summary["status"], summary["failed_replies"]) == ("finished", 6)
    history = [row for row in read_lines(folder / "history.jsonl") if row["round"] > 0]
    assert [(row["clients"], row["failed"]) for row in history] == [(len(good), 2)] * 3
    assert not any("note" in row for row in history), "every aggregate was finite"
    counted = [row["client"] for row in lines(folder, "train") if row["status"] == "ok"]
    assert counted == good * 3
    bad = [row for row in lines(folder, "train") if row["status"] == "failed"]
    assert [row["client"] for row in bad] == [1, 2] * 3
    assert all("lost its disk" in row["reason"] for row in bad[::2])
    assert all("nan" in row["reason"].lower() for row in bad[1::2])
    assert {row["status"] for row in lines(folder, "evaluate")} <= {"ok"}
    assert finite(folder)
    if registry.find(algo).client.personal:
        scored = [row["client"] for row in lines(folder, "evaluate")]
        assert scored == list(range(clients)) * 3
        assert 0 <= summary["personal_accuracy"] <= 1
