"""Models and partitions from outside: what they must be, and the sentences if they are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsuite.config import parse
from fedsuite.core import plugins
from fedsuite.core.settings import UserError
from tasks.models import build_model
from tasks.partitions import PartitionOptions
from tasks.shapes import DataShape
from tasks.split import partition
from tasks.task import open_task

DIGITS = DataShape("image", (1, 2, 2), 3)
TEXT = DataShape("tokens", (5,), 3, vocabulary=7)
LABELS = np.array([0, 1] * 6)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write a module ``brought`` with the functions ``build`` and ``split``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it is as old as the next source

    def write(result: str) -> None:
        head = "import numpy as np\nfrom torch import nn\n\n\n"
        (tmp_path / "brought.py").write_text(
            f"{head}def build(given):\n    return {result}\n\n\nsplit = build\n"
        )
        sys.modules.pop("brought", None)
        plugins.source_version.cache_clear()

    yield write
    sys.modules.pop("brought", None)


def test_a_model_is_drawn_from_the_seed_and_tried_without_a_trace(
    module: Callable[[str], None],
) -> None:
    module("nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))")
    first, again, other = (build_model("brought:build", DIGITS, seed) for seed in (1, 1, 2))
    weights = [model.state_dict()["1.weight"] for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert first.training and first.state_dict()["2.num_batches_tracked"] == 0


def test_a_model_of_texts_is_tried_on_ids(module: Callable[[str], None]) -> None:
    module("nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(10, 3))")
    assert build_model("brought:build", TEXT, 0)(torch.zeros(4, 5, dtype=torch.long)).shape == (
        4,
        3,
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("3", "TypeError: it made a int, not a torch.nn.Module"),
        ("nn.Linear(5, 3)", "does not work on image data of the shape (1, 2, 2) with 3 classes"),
        (
            "nn.Sequential(nn.Flatten(), nn.Linear(4, 10))",
            "maps 2 samples to the shape (2, 10); it must be logits of the shape (2, 3)",
        ),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_no_model_is_refused(module: Callable[[str], None], result: str, said: str) -> None:
    module(result)
    with pytest.raises(UserError) as error:
        build_model("brought:build", DIGITS, 0)
    assert said in str(error.value) and "'brought:build'" in str(error.value)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("None", "must return 2 arrays of row numbers, one per client."),
        ("[[0, 1]]", "must return 2 arrays of row numbers, one per client."),
        ("[[0.5], [1.0]]", "must return 2 arrays of row numbers, one per client."),
        ("[[[0]], [[1]]]", "must return 2 arrays of row numbers, one per client."),
        ("[[0, 12], [1]]", "gave rows that are none of 0 to 11."),
        ("[[0, -1], [1]]", "gave rows that are none of 0 to 11."),
        ("[[0, 1], []]", "left client 1 without data (2 clients, 12 samples). Use fewer clients"),
        ("[[0, 1], [1]]", "gave the same sample to two clients."),
    ],
)
def test_parts_that_are_none_are_refused(
    module: Callable[[str], None], result: str, said: str
) -> None:
    module(result)
    with pytest.raises(UserError) as error:
        partition("brought:split", LABELS, 2, PartitionOptions(), seed=1)
    assert str(error.value).startswith("partition 'brought:split' ") and said in str(error.value)


def test_a_changed_scheme_divides_again(module: Callable[[str], None]) -> None:
    def first(row: int) -> int:
        module(f"[[{row}], [{row + 1}]]")
        task = open_task.__wrapped__(parse({"partition": "brought:split", "num-clients": 2}).task)
        return int(task.split.train[0][0])

    assert first(0) == first(0) != first(5)


def test_what_is_no_function_is_refused() -> None:
    for key, what in (("model", "makes a model"), ("partition", "divides rows")):
        with pytest.raises(UserError, match=f"it is not a function that {what}"):
            parse({key: "math:pi"})
