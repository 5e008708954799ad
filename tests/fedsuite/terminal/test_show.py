"""A run's results in the terminal, whatever of them there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_folders import count_bytes_read, write_run

from fedsuite.records.reader import read_run
from fedsuite.terminal.format import duration, size
from fedsuite.terminal.show import show


def shown(folder: Path) -> str:
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))
    show(read_run(folder), console)
    return console.export_text()


def test_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of 4000 bytes up and 8000 down, 0.5 s each and before them."""
    folder = write_run(tmp_path, "good", "fedavg", [0.1, 0.4, 0.5], target_accuracy=0.4)
    bytes_read = count_bytes_read(monkeypatch, "history.jsonl")
    text = shown(folder)
    assert "good  finished" in text and "accuracy by round" in text
    assert "0.5000  (best 0.5000)" in text and "2 of 2" in text
    assert "0.4 after 1 round, 0.25 s of compute" in text
    assert "8 kB up, 16 kB down" in text and "2 s, clients' compute time 2 s" in text
    assert bytes_read() == (folder / "history.jsonl").stat().st_size


def test_who_was_expelled_and_what_the_other_output_scores(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "some", "taco", [0.1, 0.5], expelled=[1, 3], freeloaders="1")
    summary = json.loads((folder / "summary.json").read_text())
    others = {"other_output_accuracy": {"z": 0.25}}
    (folder / "summary.json").write_text(json.dumps(summary | others))
    text = shown(folder)
    assert "1 of 1 freeloaders, 1 of 3 honest clients: 1, 3" in text
    assert "0.2500  (z, which is not the saved model)" in text
    alone = shown(write_run(tmp_path, "none", "taco", [0.1, 0.5], expelled=[2]))
    assert "1 of 4 honest clients: 2" in alone and "freeloaders" not in alone
    both: dict[str, Any] = {
        "freeloaders": "1",
        "attack": "scaled",
        "attackers": "0,1,",
        "expelled": [1, 2, 3],
    }
    told = shown(write_run(tmp_path, "both", "taco", [0.1, 0.5], **both))
    assert "1 of 1 freeloaders, 1 of 2 attackers, 1 of 1 honest clients: 1, 2, 3" in told
    plain = shown(write_run(tmp_path, "plain", "taco", [0.1, 0.5]))
    assert "\nexpelled" not in plain and "\nother output" not in plain
    assert "\nexpelled" in text and "\nother output" in text


def test_a_run_that_was_left_says_how_to_resume_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "left", "fedavg", [0.1, 0.5], status="", num_rounds=9)
    text = shown(folder)
    assert "not finished" in text and f"resume it with `fedsuite resume {folder}`" in text


def test_a_summary_that_lacks_numbers_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "poor", "fedavg", [0.1, 0.5])
    (folder / "summary.json").write_text('{"status": "finished", "final_accuracy": 0.5}')
    assert "poor  finished" in shown(folder)
    (folder / "config.json").write_text("{")
    assert "broken" in shown(folder) and "not valid JSON" in shown(folder)


def test_durations_and_sizes_by_hand() -> None:
    assert [duration(s) for s in (0.4, 61, 3725)] == ["0 s", "1 min 01 s", "1 h 02 min"]
    assert [size(n) for n in (12, 4500, 7.2e6, 3e15)] == ["12 B", "4.5 kB", "7.2 MB", "3e+03 TB"]


def test_a_reason_in_a_nodes_words_is_neither_markup_nor_a_control_character(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path, "bad", "fedavg", [0.1, 0.4], status="failed")
    summary = json.loads((folder / "summary.json").read_text())
    summary["reason"] = "Trace\n[bold red]x[/] [/nothing] \x1b[31m\udcff"
    (folder / "summary.json").write_text(json.dumps(summary))
    text = shown(folder)
    assert "Trace\n[bold red]x[/] [/nothing] \ufffd[31m\ufffd" in text and "\x1b" not in text
    assert read_run(folder).note.endswith("[bold red]x[/] [/nothing] \ufffd[31m\ufffd")
