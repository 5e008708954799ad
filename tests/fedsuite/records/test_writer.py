"""The record survives crashes and has one writer."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import fedsuite.records.writer
from fedsuite.config import parse
from fedsuite.core.files import read_lines, write_atomically
from fedsuite.core.settings import UserError
from fedsuite.records.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedsuite.records.folder import RunState, find_run
from fedsuite.records.history import seconds_left
from fedsuite.records.summary import (
    missing_sentence,
    missing_updates,
    rounds_to_target,
    smoothness,
    summarise,
)
from fedsuite.records.writer import RunRecord


def make(tmp_path: Path) -> RunRecord:
    return RunRecord.create(parse({"results-dir": str(tmp_path), "run-name": "r"}), {})


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"round": 1}\n{"round": 2}\n{"rou')
    assert [row["round"] for row in read_lines(file)] == [1, 2]
    assert read_lines(tmp_path / "missing") == []


def test_reopening_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    record = make(tmp_path)
    for number in range(4):
        record.add_round({"round": number}, [{"client": 0}])
    record.close()
    unfinished = record.folder / "clients" / "000000" / f".000002.safetensors.{2**40}-1.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.touch()  # a process with this number has never been
    again = RunRecord.hold(record.folder)
    again.rewind(1)
    assert not unfinished.exists()
    again.add_round({"round": 2}, [])
    assert [row["round"] for row in again.history()] == [0, 1, 2]
    assert [row["round"] for row in read_lines(record.folder / "clients.jsonl")] == [0, 1]


def test_what_may_fill_the_disk_is_removed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make(tmp_path)
    record.add_round({"round": 0}, [])
    record.close()
    unfinished = record.folder / f".model.safetensors.{2**40}-1.tmp"
    unfinished.touch()

    def write(path: Path, content: bytes) -> None:
        assert not unfinished.exists()
        write_atomically(path, content)

    monkeypatch.setattr(fedsuite.records.writer, "write_atomically", write)
    again = RunRecord.hold(record.folder)
    again.rewind(0)
    again.close()


def test_a_run_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make(tmp_path)
    monkeypatch.setattr(fedsuite.records.writer, "LOCK_WAIT", 0.3)
    with pytest.raises(UserError, match="still being written"):
        RunRecord.hold(record.folder)
    record.close()
    RunRecord.hold(record.folder).close()


def test_a_reader_never_sees_a_half_written_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"a" * 100_000)
    seen, done = set(), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"c", b"d"):
        write_atomically(path, letter * 100_000)
    done.set()
    reader.join()
    assert all(len(set(content)) == 1 and len(content) == 100_000 for content in seen)


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    state = {"momentum": np.array([1.5], np.float32), "expelled": [3], "beta": 0.5}
    saved = Checkpoint(7, np.array([1, 2], np.float32), np.zeros(0, np.float32), state)
    save_checkpoint(tmp_path, saved)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None and loaded.round == 7
    assert np.array_equal(loaded.model, saved.model) and loaded.buffers.size == 0
    assert np.array_equal(loaded.strategy["momentum"], [1.5])
    assert loaded.strategy["expelled"] == [3] and loaded.strategy["beta"] == 0.5


def test_an_unknown_run_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no runs"):
        find_run("x", str(tmp_path))
    make(tmp_path / "runs").close()
    with pytest.raises(UserError, match=r"no run 'rr'.*Did you mean 'r'"):
        find_run("rr", str(tmp_path / "runs"))
    assert find_run("r", str(tmp_path / "runs")) == tmp_path / "runs" / "r"


HISTORY = [
    {"round": 0, "accuracy": 0.1, "loss": 2.0, "wall_seconds": 1.0},
    {
        "round": 1,
        "accuracy": 0.5,
        "loss": 1.0,
        "wall_seconds": 2.0,
        "compute_seconds": 1.5,
        "client_compute_seconds": 3.0,
        "upload_bytes": 10,
        "download_bytes": 20,
        "failed": 1,
    },
    {
        "round": 2,
        "accuracy": 0.4,
        "loss": 1.5,
        "wall_seconds": 2.0,
        "compute_seconds": 0.5,
        "client_compute_seconds": 1.0,
        "upload_bytes": 10,
        "download_bytes": 20,
        "failed": 0,
    },
]


def test_the_summary_by_hand() -> None:
    """Target 0.45 is reached in round 1 after 1.5 s; the mean of the rounds after 0 is 0.45."""
    config = parse({"target-accuracy": 0.45})
    summary = summarise(config, HISTORY, [], "finished")
    assert (summary["final_accuracy"], summary["best_accuracy"]) == (0.4, 0.5)
    assert summary["mean_last5_accuracy"] == pytest.approx(0.45)
    assert (summary["rounds_to_target"], summary["compute_seconds_to_target"]) == (1, 1.5)
    assert (summary["wall_seconds"], summary["client_compute_seconds"]) == (5.0, 4.0)
    assert summary["compute_seconds_per_round"] == 1.0, "the median of 1.5 and 0.5"
    assert (summary["upload_bytes"], summary["download_bytes"]) == (20, 40)
    assert summary["final_loss"] == 1.5 and summary["failed_replies"] == 1


def test_a_target_of_another_metric() -> None:
    """Accuracy reaches 0.5 in round 1, macro-F1 in round 2."""
    rounds = [
        {"round": number, "accuracy": accuracy, "macro_f1": f1, "compute_seconds": 2.0}
        for number, accuracy, f1 in ((0, 0.1, 0.1), (1, 0.6, 0.3), (2, 0.7, 0.5))
    ]
    config = parse({"target-accuracy": 0.5, "target-metric": "macro-f1"})
    summary = summarise(config, rounds, [], "finished")
    assert (summary["target_metric"], summary["rounds_to_target"]) == ("macro-f1", 2)
    assert summary["compute_seconds_to_target"] == 6.0
    assert rounds_to_target(rounds, parse({"target-accuracy": 0.5})) == 1
    assert summarise(parse({}), rounds, [], "finished")["target_metric"] is None


def test_a_target_never_reached() -> None:
    assert rounds_to_target(HISTORY, parse({"target-accuracy": 0.9})) is None
    assert (
        summarise(parse({"target-accuracy": 0.9}), HISTORY, [], "finished")[
            "compute_seconds_to_target"
        ]
        is None
    )


def test_smoothness_by_hand() -> None:
    """Changes 0.2 and 0.4: mean 0.3, deviation 0.1; before the last 20 changes nothing counts."""
    assert smoothness([]) is smoothness([0.5]) is None
    assert smoothness([0.1, 0.3, 0.7]) == pytest.approx(0.1)
    assert smoothness([0.9, *(0.01 * i for i in range(21))]) == pytest.approx(0.0)


def test_time_left_follows_the_last_rounds() -> None:
    """Nine slow rounds long ago do not count: 10 rounds of 1 s are left."""
    slow = [{"round": n, "wall_seconds": 100.0} for n in range(1, 10)]
    quick = [{"round": n, "wall_seconds": 1.0} for n in range(10, 31)]
    assert seconds_left([*slow, *quick], 40) == 10.0
    assert seconds_left([{"round": 0, "wall_seconds": 5.0}], 40) is None


@pytest.mark.parametrize("name", ["history.jsonl", "clients.jsonl"])
def test_a_damaged_line_in_the_middle_deletes_no_later_one(tmp_path: Path, name: str) -> None:
    record = make(tmp_path)
    for number in range(5):
        record.add_round({"round": number}, [{"client": 0}])
    record.close()
    path = record.folder / name
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], '{"round": \x00\n', *lines[3:]]))
    before = path.read_bytes()
    assert [row["round"] for row in read_lines(path)] == [0, 1, 3, 4]
    held = RunRecord.hold(record.folder)
    with pytest.raises(UserError, match=f"line 3 of {name} is damaged"):
        held.rewind(3)
    held.close()
    assert path.read_bytes() == before


def test_a_history_that_lacks_the_checkpoints_round_is_not_resumed(tmp_path: Path) -> None:
    record = make(tmp_path)
    for number in range(3):
        record.add_round({"round": number}, [])
    record.close()
    before = record.files.history_file.read_bytes()
    held = RunRecord.hold(record.folder)
    with pytest.raises(UserError, match="checkpoint is of round 7, which history.jsonl lacks"):
        held.rewind(7)
    held.close()
    assert record.files.history_file.read_bytes() == before


def test_a_run_that_ended_while_its_lock_was_waited_for_is_not_resumed(tmp_path: Path) -> None:
    """The live run ends well while the resume waits for it."""
    record = make(tmp_path)
    record.add_round({"round": 0}, [])
    ends = threading.Timer(0.5, record.finish, [{"status": "finished"}])
    ends.start()
    with pytest.raises(UserError, match="is done; there is nothing to resume"):
        RunRecord.hold(record.folder)
    ends.join()
    assert not record.files.is_being_written
    assert record.files.state is RunState.FINISHED


def test_the_share_of_missing_updates_by_hand() -> None:
    """3 + 1 + 4 of 12 arrived; the round before training asks nobody."""
    rows = [{"round": 0}, {"clients": 3, "failed": 1}, {"clients": 1, "failed": 3}]
    rows += [{"clients": 4, "failed": 0}]
    assert missing_updates(rows) == pytest.approx(4 / 12)
    assert missing_updates(rows[:1]) == 0.0
    told = missing_sentence({"missing_updates": 4 / 12, "failed_replies": 4})
    assert told == "33 % of the client updates are missing (4)"
    told = missing_sentence({"missing_updates": 0.004, "failed_replies": 4})
    assert told == "0.4 % of the client updates are missing (4)"
    assert missing_sentence({"missing_updates": 0.0}) == missing_sentence({}) == ""
