"""What runs take: by finished runs, by a step, and what is left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from fedsuite.config import RunConfig, parse
from fedsuite.engines.choice import Cost
from fedsuite.records.folder import RunState
from fedsuite.suites import run_estimate
from fedsuite.suites.forecast import Forecast, make_forecast
from fedsuite.suites.jobs import Job
from fedsuite.suites.live_table import SuiteRun, time_left
from fedsuite.suites.run_estimate import Estimate, Estimator, total_memory, total_seconds

START = 4.0


def config_of(folder: Path, **settings: Any) -> RunConfig:
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    base = {"algo": "fedavg", "model": "mlp", "num-clients": 4, "num-rounds": 2}
    return parse(base | {"results-dir": str(folder), "run-name": "new"} | given)


def test_runs_of_the_same_settings_come_first_then_those_of_the_same_work(tmp_path: Path) -> None:
    """A record has 0.5 s per round and for round 0: 1.5 s for two rounds, 3 s for five."""
    write_run(tmp_path, "a", "fedavg", [0.1, 0.2, 0.3], seed=1)
    write_run(tmp_path / "suite", "b", "fedavg", [0.1] * 6, seed=2)
    write_run(tmp_path, "c", "taco", [0.1] * 4, seed=2)
    write_run(tmp_path, "cut", "fedavg", [0.1] * 9, seed=2, status="interrupted")
    estimator = Estimator(tmp_path, "inline")
    same = estimator.estimate(config_of(tmp_path, seed=7))
    assert same.seconds == pytest.approx(START + 1.5)
    assert same.basis == "1 finished run of the same settings"
    # Eight rounds of all four clients: 1.5 s x 8/2 and 3 s x 8/5, on average 5.4 s.
    longer = estimator.estimate(config_of(tmp_path, num_rounds=8))
    assert longer.seconds == pytest.approx(START + 5.4)
    assert longer.basis == "2 finished runs of fedavg on digits with mlp, scaled"
    # Half of the clients per round: half of the work.
    half = estimator.estimate(config_of(tmp_path, num_rounds=8, fraction_train=0.5))
    assert half.seconds == pytest.approx(START + 2.7)
    assert Estimator(tmp_path, "ray").estimate(config_of(tmp_path)).basis.startswith("a measured")


def test_a_step_is_measured_once_for_all_seeds_and_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of 1437 samples at 1 ms and 360 test samples at 0.1 ms are 2.946 s."""
    measured = []

    def cost(*of: object) -> Cost:
        measured.append(of)
        return Cost(0.001, 0.0001)

    monkeypatch.setattr(run_estimate, "measure_cost", cost)
    estimator = Estimator(tmp_path, "inline")
    found = [estimator.estimate(config_of(tmp_path, seed=s, lr=0.1 * s)) for s in (1, 2, 3)]
    assert [e.seconds for e in found] == pytest.approx([START + 2.946] * 3)
    assert {e.basis for e in found} == {"a measured step of the model"} and len(measured) == 1
    monkeypatch.setattr(run_estimate, "PARALLEL_START_SECONDS", 10.0)
    at_once = Estimator(tmp_path, "ray", nodes=2).estimate(config_of(tmp_path))
    assert at_once.seconds == pytest.approx(10 + 2.946 / 2)


def test_memory_grows_with_clients_and_batches(tmp_path: Path) -> None:
    """One more client is one more vector; one more sample, what the layers keep of it."""
    estimator = Estimator(tmp_path, "inline")
    sizes = [
        estimator.estimate(config_of(tmp_path, **settings), memory=True).memory or 0
        for settings in ({}, {"num_clients": 5}, {"batch_size": 17})
    ]
    task, module = run_estimate._build(config_of(tmp_path))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    assert sizes[1] - sizes[0] == 4 * parameters
    assert sizes[2] - sizes[0] == run_estimate.activation_bytes(module, task) > 4 * 64
    assert sizes[0] > task.dataset.x.nbytes


def test_what_cannot_be_known_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = config_of(tmp_path, dataset="mnist", model="lenet")
    found = Estimator(tmp_path, "inline").estimate(away, memory=True)
    assert found == Estimate(None, "its data are not here yet")

    def fails(*of: object) -> Cost:
        raise ZeroDivisionError("no such layer")

    monkeypatch.setattr(run_estimate, "measure_cost", fails)
    found = Estimator(tmp_path, "inline").estimate(config_of(tmp_path))
    assert found == Estimate(None, "its model cannot be measured: no such layer")


def test_of_an_interrupted_run_the_rest_counts(tmp_path: Path) -> None:
    """Of four rounds one is done: three quarters of the (4 + 2.5) s are left."""
    write_run(tmp_path, "whole", "fedavg", [0.1] * 5)
    write_run(tmp_path, "new", "fedavg", [0.1] * 2, status="interrupted", num_rounds=4)
    job = Job({}, "", config_of(tmp_path, num_rounds=4))
    forecast = make_forecast([job], tmp_path, "inline", 1, 2)
    assert forecast.seconds == pytest.approx(0.75 * 6.5) and forecast.width == 1
    assert forecast.text == "about 5 s"


def test_totals_are_those_of_runs_side_by_side() -> None:
    assert total_seconds([10, 20, 30], 2) == 30 and total_seconds([10, 10, 40], 2) == 40
    assert total_seconds([], 3) == 0
    assert total_memory([100, 300, 200], 2) == 500
    known, unknown = Estimate(90.0, "", 10**9), Estimate(None, "its data are not here yet")
    forecast = Forecast({"a": known, "b": known, "c": unknown}, 2)
    assert forecast.text == "about 1 min 30 s, 2 runs at a time without 1 run of unknown time"
    assert forecast.memory == "up to 2 GB of memory"
    assert Forecast({"c": unknown}, 1).text == "time unknown" and Forecast({}, 1).text == ""


def test_the_time_left_follows_the_pace_of_what_is_done(tmp_path: Path) -> None:
    """The first took 20 s of an expected 10: the waiting take 20 s each, the running 3 rounds."""
    jobs = [
        Job({}, "", config_of(tmp_path, run_name=name, num_rounds=4)) for name in ("a", "b", "c")
    ]
    done, running, waiting = (SuiteRun(job, RunState.WAITING, 10.0) for job in jobs)
    done.state, done.seconds = RunState.FINISHED, 20.0
    jobs[1].folder.mkdir()
    jobs[1].files.history_file.write_text('{"round": 1, "wall_seconds": 9.0}\n')
    running.start()
    assert time_left([done, running, waiting], 1) == pytest.approx(27 + 20)
    assert time_left([done, running, waiting], 2) == pytest.approx(27)
    waiting.expected = None
    assert time_left([done, running, waiting], 1) is None
    assert time_left([done], 1) == 0
