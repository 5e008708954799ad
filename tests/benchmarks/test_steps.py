"""The table of step costs has every registered algorithm, and one that fails hides no other."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from benchmarks.report import StepCost, steps_table
from benchmarks.steps import REFERENCE, step_costs
from benchmarks.workloads import W2
from fedsuite import registry

TINY = dataclasses.replace(W2, dataset="digits", batch_size=16)


def measure(folder: Path) -> list[StepCost]:
    return step_costs(TINY, Path(), folder, steps=2, seconds=0.0)


@pytest.mark.slow
def test_every_registered_algorithm_is_timed(tmp_path: Path) -> None:
    costs = measure(tmp_path)
    assert [cost.algo for cost in costs if cost.error] == []
    assert costs[0].algo == REFERENCE
    assert sorted(cost.algo for cost in costs) == sorted(registry.ALGORITHMS)
    assert all(cost.seconds > 0 and cost.ratio > 0 for cost in costs)
    assert len(steps_table(costs).splitlines()) == 2 + len(registry.ALGORITHMS)


def test_a_new_algorithm_is_in_by_itself_also_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = dataclasses.replace(registry.ALGORITHMS["fedprox"], summary="mine")
    broken = dataclasses.replace(mine, client="clients.fedavg:NoSuchClient")
    known = {REFERENCE: registry.ALGORITHMS[REFERENCE], "broken": broken, "mine": mine}
    monkeypatch.setattr(registry, "ALGORITHMS", known)
    level = logging.getLogger("fedsuite").level
    costs = measure(tmp_path)
    assert logging.getLogger("fedsuite").level == level, "others in this process are heard again"
    assert [(cost.algo, bool(cost.error)) for cost in costs] == [
        (REFERENCE, False),
        ("mine", False),
        ("broken", True),
    ]
