"""The Ray engine without Ray: when a run is over, and that all its processes end then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from run_folders import write_run

from fedsuite.config import RunConfig, parse
from fedsuite.core.processes import Child, kill, start
from fedsuite.engines import ray
from fedsuite.engines.contract import EngineOptions, IsRunning
from fedsuite.engines.ray import SuperLink
from fedsuite.records.folder import RunFolder

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleepers() -> Iterator[list[Child]]:
    """Two processes in the place of ``flwr run`` and of the SuperLink."""
    processes = [start(SLEEP), start(SLEEP)]
    yield processes
    kill(*processes)


def test_a_run_is_over_with_its_summary_and_with_either_process(
    tmp_path: Path, sleepers: list[Child]
) -> None:
    run, link = sleepers
    superlink = SuperLink(tmp_path, 1, link)
    done = RunFolder(write_run(tmp_path, "done", "fedavg", [0.1, 0.5]))
    begun = RunFolder(tmp_path / "begun")
    assert not ray._is_running(run, superlink, done, 0.01)
    assert ray._is_running(run, superlink, begun, 0.01)
    kill(link)
    assert not ray._is_running(run, superlink, begun, 0.01)


def test_a_prepared_superlink_is_used_and_nothing_is_left(
    tmp_path: Path, sleepers: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, link = sleepers
    homes: list[Path] = []
    monkeypatch.setattr(ray, "await_health", lambda *_: None)

    def submit(config: RunConfig, options: EngineOptions, home: Path, log: IO[bytes]) -> Child:
        homes.append(home)
        return run

    monkeypatch.setattr(ray, "_submit", submit)
    config = parse({"results-dir": str(tmp_path / "runs"), "run-name": "mine"})
    asked: list[bool] = []

    def follow(is_running: IsRunning) -> None:
        asked.append(is_running(0.01))

    options = EngineOptions(2, 0.0, SuperLink(tmp_path / "home", 1, link))
    ray.execute(config, options, follow)
    assert homes == [tmp_path / "home"] and asked == [True]
    assert run.poll() is not None and link.poll() is not None


def test_ray_starts_no_worker_that_flower_does_not_use_and_reports_to_nobody(
    tmp_path: Path,
) -> None:
    own = ray._own_ray(tmp_path)
    assert own["RAY_prestart_worker_first_driver"] == own["RAY_USAGE_STATS_ENABLED"] == "0"
    assert own["RAY_AUTH_MODE"] == "token" and len(own["RAY_AUTH_TOKEN"]) == 64
