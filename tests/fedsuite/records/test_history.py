"""Rounds are read once each, while they are written and after a resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import count_bytes_read, write_run

from fedsuite.config import parse
from fedsuite.records.history import LiveHistory, describe_round, score_curve
from fedsuite.records.reader import RunReader
from fedsuite.records.writer import RunRecord
from fedsuite.terminal.progress import follow

Reads = Callable[[], int]


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return count_bytes_read(monkeypatch, "history.jsonl")


def begin(folder: Path, rounds: int = 0) -> RunRecord:
    config = parse({"results-dir": str(folder), "run-name": "live", "num-rounds": 400})
    record = RunRecord.create(config, {})
    for number in range(rounds):
        add(record, number)
    return record


def add(record: RunRecord, number: int) -> None:
    record.add_round({"round": number, "accuracy": number / 1000, "wall_seconds": 1.0}, [])


def test_following_a_run_reads_every_byte_once(tmp_path: Path, bytes_read: Reads) -> None:
    """300 polls, one round each: rereading the file would be about 150 times its size."""
    record = begin(tmp_path)
    number = 0

    def alive(seconds: float) -> bool:
        nonlocal number
        add(record, number)
        number += 1
        return number < 300

    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    follow(record.folder, 400, alive, console)
    record.close()
    text = console.export_text()
    assert text.count("s/round") == 300 and "round 299/400  accuracy 0.2990" in text
    assert bytes_read() == (record.folder / "history.jsonl").stat().st_size


def test_watching_a_run_reads_every_byte_once(tmp_path: Path, bytes_read: Reads) -> None:
    record = begin(tmp_path, rounds=100)
    reader = RunReader(record.folder)
    for number in range(100, 200):
        assert reader.read().last_round == number - 1
        add(record, number)
    assert len(reader.read().history) == 200
    assert bytes_read() == (record.folder / "history.jsonl").stat().st_size
    record.close()


def test_the_writer_knows_its_rounds_without_reading_them(
    tmp_path: Path, bytes_read: Reads
) -> None:
    record = begin(tmp_path, rounds=50)
    for _ in range(50):
        assert record.history()[-1]["round"] == 49
    record.close()
    assert bytes_read() == 0
    lines = (record.folder / "history.jsonl").read_text().splitlines()
    assert record.history() == [json.loads(line) for line in lines]


def test_a_resumed_run_is_followed_from_its_checkpoint(tmp_path: Path) -> None:
    """Rounds 0 to 3 are kept, 4 and 5 are run again: only those two are new."""
    record = begin(tmp_path, rounds=6)
    record.close()
    history = LiveHistory(tmp_path / "live" / "history.jsonl")
    assert len(history.update()) == 6
    again = RunRecord.hold(record.folder)
    again.rewind(3)
    again.add_round({"round": 4, "accuracy": 0.9, "wall_seconds": 1.0}, [])
    again.add_round({"round": 5, "accuracy": 0.9, "wall_seconds": 1.0}, [])
    assert [row["round"] for row in history.update()] == [4, 5]
    assert [row["accuracy"] for row in history.rows[3:]] == [0.003, 0.9, 0.9]
    assert history.update() == []
    again.close()


def test_a_history_that_is_not_there_yet_has_no_rounds(tmp_path: Path) -> None:
    history = LiveHistory(tmp_path / "history.jsonl")
    assert history.update() == []
    (tmp_path / "history.jsonl").write_text('{"round": 0}\n{"rou')
    assert history.update() == [{"round": 0}]


def test_the_score_is_the_global_models_else_the_clients_own(tmp_path: Path) -> None:
    write_run(tmp_path, "run", "fedavg", [0.25, 0.0])
    rows = RunReader(tmp_path / "run").read().history
    metric, points = score_curve(rows) or (None, [])
    assert metric is not None and metric.name == "accuracy" and points == [(0, 0.25), (1, 0.0)]
    own = [{"round": 1, "accuracy": None, "personal_accuracy": 0.5}]
    metric, points = score_curve(own) or (None, [])
    assert metric is not None and metric.name == "personal_accuracy" and points == [(1, 0.5)]
    assert score_curve([]) is None


def test_a_rounds_line_has_scores_clients_and_time_as_the_table_of_metrics_writes_them() -> None:
    row = {"round": 3, "accuracy": 0.5, "personal_accuracy": 0.25, "clients": 1, "failed": 2}
    line = describe_round(row | {"wall_seconds": 1.5})
    assert line == [
        "accuracy 0.5000",
        "personal accuracy 0.2500",
        "1 client, 2 failed",
        "1.50 s/round",
    ]
    assert describe_round({"round": 0, "wall_seconds": 0.25}) == ["0.25 s/round"]
    assert describe_round({"clients": 2, "failed": 0, "wall_seconds": 1})[0] == "2 clients"
