"""The live table of a suite."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import count_bytes_read

from fedsuite.core.files import json_line
from fedsuite.records.folder import RunState
from fedsuite.suites.definition import read_suite
from fedsuite.suites.jobs import plan_jobs
from fedsuite.suites.live_table import LiveTable, SuiteRun

TEXT = """
title = "One method"
metric = "final_accuracy"
rows = "algo"
columns = ["dataset"]
runs = 1

[base]
num-rounds = 200

[axes]
seed = [1]
algo = ["fedavg"]
dataset = ["digits"]
"""


def test_a_run_is_read_once_however_often_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 screens of a history that grows by a line each: every byte is read once."""
    bytes_read = count_bytes_read(monkeypatch, "history.jsonl")
    (tmp_path / "mine.toml").write_text(TEXT)
    suite = read_suite(tmp_path / "mine.toml")
    (job,), _ = plan_jobs(suite, suite.plans, tmp_path, "")
    job.files.make()
    run = SuiteRun(job, RunState.WAITING)
    run.start()
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30)
    with LiveTable(console, suite, [run]) as table, job.files.history_file.open("a") as history:
        for number in range(100):
            row = {"round": number, "accuracy": number / 1000, "wall_seconds": 1.0}
            history.write(json_line(row))
            history.flush()
            table.update()
    shown = screen.getvalue()
    assert "99/200" in shown and "0.0990" in shown and "1 min 41 s" in shown
    assert bytes_read() == job.files.history_file.stat().st_size


def test_a_finished_run_is_done_however_it_was_finished(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    suite = read_suite(tmp_path / "mine.toml")
    (job,), _ = plan_jobs(suite, suite.plans, tmp_path, "")
    for state in (RunState.FINISHED, RunState.TARGET_REACHED):
        run = SuiteRun(job, state)
        assert run.label == "done" and run.before and run.ended
