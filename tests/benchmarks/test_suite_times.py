"""The estimate of a suite's time, worked by hand with a step of 10 ms."""

from __future__ import annotations

import pytest

from benchmarks import suite_times
from benchmarks.suite_times import START_SECONDS, duration, run_seconds
from fedsuite.config import parse


@pytest.fixture(autouse=True)
def a_step_takes_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_times, "step_seconds", lambda step: 0.01)


def test_steps_and_scores_of_a_run_add_up() -> None:
    values = {"dataset": "mnist", "num-clients": 2, "num-rounds": 3, "batch-size": 10}
    config = parse(values | {"local-steps": 10, "eval-rows": 30})
    # A round: 2 clients x 10 steps, and 3 batches scored at a third of a step each.
    assert run_seconds(config, "fedavg") == pytest.approx(START_SECONDS + 3 * (0.2 + 0.01))
    assert run_seconds(config, "stem") == pytest.approx(START_SECONDS + 3 * (0.4 + 0.01))


def test_passes_over_shards_count_the_rows_that_are_used() -> None:
    values = {"dataset": "mnist", "partition": "shards", "num-shards": 300, "num-clients": 20}
    config = parse(values | {"num-rounds": 1, "batch-size": 100, "fraction-train": 0.5})
    # 40 of 300 shards are 8,000 rows, half of them per round: 40 steps; 100 batches are scored.
    assert run_seconds(config, "fedavg") == pytest.approx(START_SECONDS + 0.4 + 100 * 0.01 / 3)


def test_durations_are_written_roughly() -> None:
    words = [duration(seconds) for seconds in (10, 600, 7200, 10 * 86400)]
    assert words == ["1 min", "10 min", "2 h", "10 days"]


def test_a_step_is_timed() -> None:
    step = suite_times.Step("mlp", "adult", 8, "sgd")
    assert 0 < suite_times.time_step(step) < 5
