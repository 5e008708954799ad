"""The odd datasets: a function of the seed, all learned from or refused, a crash noticed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fedsuite.core.settings import UserError
from fuzz import own_datasets
from fuzz.odd_datasets import Odd, make
from fuzz.own_datasets import check
from tasks.own_task import own_task


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_odd_datasets_are_learned_from_or_refused(seed: int, tmp_path: Path) -> None:
    assert check(seed, 60, tmp_path) == []


def test_datasets_are_a_function_of_the_seed(tmp_path: Path) -> None:
    def stories(seed: int, folder: str) -> list[str]:
        numbers = range(6)
        return [
            make(np.random.default_rng([seed, n]), tmp_path / folder / str(n)).story
            for n in numbers
        ]

    assert stories(3, "a") == stories(3, "b") != stories(4, "c")


def planted(monkeypatch: pytest.MonkeyPatch, what: Any) -> None:
    def plant(*_: Any) -> Any:
        if isinstance(what, BaseException):
            raise what
        return what()

    monkeypatch.setattr(own_datasets, "describe_path", plant)


def test_a_crash_is_noticed_and_a_refusal_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, KeyError("planted"))
    (line,) = check(7, 1, tmp_path / "crash")
    assert line.startswith("dataset 0 of seed 7 (") and line.endswith("): KeyError: 'planted'")
    planted(monkeypatch, UserError("The data has no rows."))
    assert check(7, 1, tmp_path / "refused") == []
    planted(monkeypatch, UserError(""))
    (line,) = check(7, 1, tmp_path / "silent")
    assert line.endswith("refused without a sentence")


def test_what_does_not_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_datasets, "TIME_LIMIT_SECONDS", 0.05)
    planted(monkeypatch, lambda: time.sleep(5))
    (line,) = check(7, 1, tmp_path)
    assert line.endswith("TimeoutError: it takes over 0.05 seconds")


def test_lost_rows_and_inputs_that_are_not_finite_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.csv"
    path.write_text("age,label\n" + "1,a\n2,b\n" * 5)
    learn = own_datasets._learn
    assert learn(Odd(path, "", 10), tmp_path) == ""
    assert learn(Odd(path, "", 11), tmp_path) == "10 rows instead of 11"

    def with_a_hole(*arguments: Any) -> Any:
        task = own_task(*arguments)
        task.dataset.x[3] = np.nan
        return task

    hole = mock.Mock(side_effect=with_a_hole)
    monkeypatch.setattr(own_datasets, "own_task", hole)
    assert learn(Odd(path, "", 10), tmp_path) == "inputs that are not finite"
