"""An aggregation needs memory for some vectors, however many clients there are."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fedsuite import registry
from fedsuite.core import vector
from fedsuite.core.transport import ByReference
from fedsuite.core.vector_files import vector_files
from strategies import foolsgold
from strategies.base import Round, RunInfo

CLIENTS, SIZE = 50, 20_000
SHAPES = {"body.weight": (199, 100), "fc.weight": (10, 9), "fc.bias": (10,)}
NUMBERS = ("consensus", "reliability", "accuracy", "discrepancy", "num-examples", "steps")


@pytest.mark.parametrize(
    ("algo", "params"),
    [(name, {}) for name in sorted(registry.ALGORITHMS) if name != "fedtgp"]
    + [
        ("fedtgp", {"prototype_epochs": 1}),
        ("feda4", {"trajectory": "compact"}),
        ("foolsgold", {"variant": "taco"}),
        ("fedamp", {"heuristic": True}),
        ("fedbac", {"reference": "current"}),
        ("scaffold", {"control": "gradient"}),
    ],
)
def test_no_temporary_has_a_row_per_client(
    algo: str, params: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 50 clients takes less than a quarter of their 50 x 20,000 numbers.

    It is the second one: in the first, Python still imports what numpy needs.
    """
    monkeypatch.setattr(foolsgold, "BLOCK", 512)
    monkeypatch.setattr(vector, "MOST_COPIED", 512 * CLIENTS)
    cls = registry.find(algo).strategy
    info = RunInfo(
        num_clients=CLIENTS,
        client_sizes=dict.fromkeys(range(CLIENTS), 1),
        seed=0,
        shapes=SHAPES,
        probe=lambda model, buffers: (np.array([0.5, 0.5]), 0.5),
    )
    strategy = cls(info, cls.Params(**params))
    strategy.model = np.zeros(SIZE, np.float32)
    draw = np.random.default_rng(0)
    with vector_files(tmp_path / "run") as files:
        strategy.vectors = ByReference(files)
        arrays = {
            name: draw.random((CLIENTS, length), dtype=np.float32)
            for name, length in strategy.lengths().items()
        }
        for number in (1, 2):
            this_round = Round(
                number=number,
                model=strategy.model,
                clients=list(range(CLIENTS)),
                arrays=arrays,
                buffers=np.zeros((CLIENTS, 0), np.float32),
                num_examples=np.ones(CLIENTS),
                num_steps=np.ones(CLIENTS),
                lr=0.1,
                metrics=[dict.fromkeys(NUMBERS, 1.0)] * CLIENTS,
                zeros=strategy.vectors.zeros,
            )
            tracemalloc.start()
            try:
                strategy._aggregate(this_round)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert not strategy.round_record.is_void
        assert peak < CLIENTS * SIZE * 4 / 4
