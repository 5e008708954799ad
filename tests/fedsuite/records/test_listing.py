"""Listing runs survives whatever is in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import write_run, write_suite

from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.records.folder import RunState
from fedsuite.records.reader import list_runs
from fedsuite.records.writer import RunRecord


def drop(folder: Path, *names: str) -> None:
    """Take numbers out of a run's summary."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | dict.fromkeys(names)))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_run(tmp_path, "good", "fedavg", [0.1, 0.5])
    zero = write_run(tmp_path, "zero", "fedavg", [0.1, 0.0])
    drop(zero, "personal_accuracy")
    drop(write_run(tmp_path, "own", "local", [0.1, 0.75]), "final_accuracy")
    write_run(tmp_path, "left", "fedavg", [0.1, 0.25], status="", num_rounds=9)
    for name, file, text in (
        ("cut", "config.json", '{"algo": '),
        ("torn", "summary.json", "{"),
        ("odd", "summary.json", '{"status": "[/none]"}'),
        ("list", "summary.json", "[1]"),
    ):
        write_run(tmp_path, name, "fedavg", [0.1, 0.5])
        (tmp_path / name / file).write_text(text)
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_every_run_is_listed_with_its_state_and_its_score(results: Path) -> None:
    live = RunRecord.create(parse({"results-dir": str(results), "run-name": "live"}), {})
    live.add_round({"round": 0, "accuracy": 0.125, "wall_seconds": 0.1}, [])
    try:
        runs = list_runs(results)
    finally:
        live.close()
    assert {name: run.state for name, run in runs.items()} == {
        "good": RunState.FINISHED,
        "zero": RunState.FINISHED,
        "own": RunState.FINISHED,
        "left": RunState.NOT_FINISHED,
        "live": RunState.RUNNING,
        **dict.fromkeys(("cut", "torn", "odd", "list"), RunState.BROKEN),
    }
    assert runs["good"].description == "finished, round 1, final accuracy 0.5000"
    assert runs["zero"].description == "finished, round 1, final accuracy 0.0000"
    assert runs["own"].description == "finished, round 1, personal accuracy 0.7500"
    assert runs["left"].description == "not finished, round 1, accuracy 0.2500"
    assert runs["live"].description == "running, round 0, accuracy 0.1250"
    assert "not valid JSON" in runs["cut"].description
    assert "unknown status: '[/none]'" in runs["odd"].description


def test_the_command_lists_them_all(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "runs", "--results-dir", str(results)]) == 0
    out = capsys.readouterr().out
    for name in ("good", "zero", "own", "left", "cut", "torn", "odd", "list"):
        assert any(line.split()[0] == name for line in out.splitlines() if line.strip())
    assert "accuracy 0.0000" in out and "local on digits" in out


def test_no_folder_is_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nowhere") == {}


def test_runs_of_suites_and_folders_are_listed_too(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(results / "demo")
    write_run(results / "old" / "may", "deep", "taco", [0.1, 0.5])
    (results / "demo" / "loop").symlink_to(results)
    names = list(list_runs(results))
    assert "demo/taco-s1" in names and "old/may/deep" in names
    assert len(names) == 8 + 12 + 1
    assert main(["list", "runs", "--results-dir", str(results)]) == 0
    assert "old/may/deep" in capsys.readouterr().out


def test_runs_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "runs", "--json", "--results-dir", str(results)]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    own = entries["own"]
    assert own["folder"] == str(results / "own")
    assert (own["state"], own["algo"], own["dataset"]) == ("finished", "local", "digits")
    assert (own["seed"], own["round"]) == (0, 1)
    assert (own["metric"], own["value"]) == ("personal_accuracy", 0.75)
    assert entries["cut"]["state"] == "broken" and entries["cut"]["algo"] is None
    assert main(["list", "runs", "--json", "--results-dir", str(results / "nowhere")]) == 0
    assert json.loads(capsys.readouterr().out) == []
