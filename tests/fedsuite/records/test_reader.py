"""Runs are read whatever state they are in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run, write_suite

from fedsuite.config import parse
from fedsuite.core.settings import UserError
from fedsuite.records.collection import open_collection
from fedsuite.records.reader import read_run
from fedsuite.records.writer import RunRecord


def test_every_state_has_its_name(tmp_path: Path) -> None:
    write_run(tmp_path, "good", "fedavg", [0.1, 0.5])
    write_run(tmp_path, "bad", "fedavg", [0.1, 0.5], status="failed")
    write_run(tmp_path, "left", "fedavg", [0.1, 0.5], status="", num_rounds=9)
    (tmp_path / "hollow").mkdir()
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "file").write_text("")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text('{"algo": ')
    (tmp_path / "poor").mkdir()
    (tmp_path / "poor" / "config.json").write_text('{"algo": "taco"}')
    odd = write_run(tmp_path, "odd", "fedavg", [0.1, 0.5])
    (odd / "history.jsonl").write_text('{"lines": 2}\n')
    live = RunRecord.create(parse({"results-dir": str(tmp_path), "run-name": "live"}), {})
    try:
        runs = {run.name: run for run in open_collection(str(tmp_path)).runs}
    finally:
        live.close()
    assert {name: run.state for name, run in runs.items()} == {
        "good": "finished",
        "bad": "failed",
        "left": "not finished",
        "hollow": "empty",
        "stray": "broken",
        "cut": "broken",
        "poor": "broken",
        "odd": "finished",
        "live": "running",
    }
    assert "no room left" in runs["bad"].note
    assert "1 of 9 rounds" in runs["left"].note and "fedsuite resume" in runs["left"].note
    assert "not valid JSON" in runs["cut"].note
    assert "dataset" in runs["poor"].note
    assert runs["odd"].damage() == "line 1 of history.jsonl is damaged and left out"
    assert read_run(tmp_path / "live").state == "not finished"


def test_methods_go_down_and_settings_across(tmp_path: Path) -> None:
    for name, seed, zeta in (("a", 1, 0.1), ("b", 2, 0.5)):
        settings: dict[str, Any] = {"seed": seed, "fedprox.zeta": zeta}
        write_run(tmp_path, name, "fedprox", [0.1, 0.5], **settings)
    write_run(tmp_path, "c", "fedavg", [0.1, 0.5], seed=1, lr=0.05)
    collection = open_collection(str(tmp_path))
    assert collection.row_names() == ["fedprox (zeta=0.1)", "fedprox (zeta=0.5)", "fedavg"]
    assert collection.column_names() == ["digits, lr 0.1", "digits, lr 0.05"]


def test_settings_that_differ_in_much_are_numbered(tmp_path: Path) -> None:
    write_run(tmp_path, "a", "fedavg", [0.1, 0.5], lr=0.05, batch_size=8, momentum=0.9)
    write_run(tmp_path, "b", "fedavg", [0.1, 0.5], weight_decay=0.1)
    collection = open_collection(str(tmp_path))
    assert collection.column_names() == ["digits, #1", "digits, #2"]
    assert collection.remarks[0].startswith("Setting #1 is digits, batch-size 8, lr 0.05")


def test_a_suite_is_read_by_its_manifest(tmp_path: Path) -> None:
    write_suite(tmp_path)
    write_run(tmp_path, "older", "fedavg", [0.1, 0.2])
    document = json.loads((tmp_path / "suite.json").read_text())
    labels = {"algo": "fedavg", "dataset": "digits", "seed": 3}
    document["runs"].append({"name": "later", "labels": labels, "key": ""})
    (tmp_path / "suite.json").write_text(json.dumps(document))
    suite = open_collection(str(tmp_path))
    assert suite.small and suite.title == "A demonstration"
    assert suite.runs[-1].state == "not started"
    assert "older" not in [run.name for run in suite.runs]
    assert suite.remarks[0].startswith("1 more run")
    assert suite.row_names()[0] == "fedavg" and suite.column_names() == ["digits"]


@pytest.mark.parametrize("text", ["{}", '{"runs": [{}]}', "[", '{"runs": 3}'])
def test_a_broken_manifest_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "suite.json").write_text(text)
    with pytest.raises(UserError, match=r"suite\.json"):
        open_collection(str(tmp_path))


def test_suites_beside_runs_are_left_out_and_named(tmp_path: Path) -> None:
    write_suite(tmp_path / "demo")
    with pytest.raises(UserError, match="has no runs but suites: demo"):
        open_collection(str(tmp_path))
    write_run(tmp_path, "alone", "fedavg", [0.1, 0.5])
    collection = open_collection(str(tmp_path))
    assert [run.name for run in collection.runs] == ["alone"]
    assert collection.remarks == ["Suites have reports of their own and are left out: demo."]


def test_a_folder_without_runs_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There are no runs"):
        open_collection(str(tmp_path))
    with pytest.raises(UserError, match="There is no folder"):
        open_collection("nowhere", str(tmp_path))
