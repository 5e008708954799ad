"""Every real dataset that is there loads, is divided and trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsuite.core.files import read_document, read_lines

pytestmark = pytest.mark.slow

PRESENT = (
    "mnist",
    "fashion-mnist",
    "cifar10",
    "tiny-imagenet",
    "emnist",
    "adult",
    "ag-news",
    "shakespeare",
)


@pytest.mark.parametrize("name", PRESENT)
def test_a_round_on_real_data(
    experiment: Callable[..., Path], shared_data: Path, name: str
) -> None:
    folder = experiment(
        dataset=name,
        data_root=str(shared_data),
        model="auto",
        partition="natural" if name == "shakespeare" else "dirichlet",
        num_clients=3,
        num_rounds=1,
        local_steps=2,
        batch_size=4,
        eval_rows=16,
    )
    assert read_document(folder / "summary.json")["status"] == "finished"
    rows = read_lines(folder / "clients.jsonl")
    assert [row["status"] for row in rows] == ["ok"] * 3
    assert all(0 < row["loss"] < 20 for row in rows)
