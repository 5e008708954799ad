"""A run is watched from its files."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import write_run

import fedsuite.terminal.watch
from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.records.summary import summarise
from fedsuite.records.writer import RunRecord
from fedsuite.terminal.watch import watch


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedsuite.terminal.watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(fedsuite.terminal.watch, "GRACE_SECONDS", 0.1)


def begin(folder: Path, name: str = "live") -> RunRecord:
    config = parse({"results-dir": str(folder), "run-name": name, "num-rounds": 3})
    record = RunRecord.create(config, {"engine": "flower"})
    record.add_round({"round": 0, "accuracy": 0.1, "wall_seconds": 0.1}, [])
    row = {"round": 1, "accuracy": 0.4, "wall_seconds": 2.0, "failed": 1, "note": "one was lost"}
    failed = {"phase": "train", "client": 7, "status": "failed", "reason": "Trace\nOSError: disk"}
    record.add_round(row, [failed])
    return record


def test_once_shows_how_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = begin(tmp_path)
    words = ["watch", "live", "--results-dir", str(tmp_path), "--once"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "running" in out and "1/3 rounds, 4 s left" in out and "accuracy by round" in out
    assert "client 7 left out (train): OSError: disk" in out and "one was lost" in out
    record.close()
    assert main(words) == 1
    assert "fedsuite resume" in capsys.readouterr().out


def test_a_suite_is_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "suite.json").write_text("{}")
    assert main(["watch", "demo", "--results-dir", str(tmp_path)]) == 2
    assert "is a suite. Watch one of its runs" in capsys.readouterr().err


def test_it_follows_until_the_run_ends(tmp_path: Path) -> None:
    record = begin(tmp_path)

    def finish() -> None:
        for number in (2, 3):
            time.sleep(0.1)
            record.add_round({"round": number, "accuracy": 0.5, "wall_seconds": 0.1}, [])
        config = parse({"run-name": "live", "num-rounds": 3})
        record.finish(summarise(config, record.history(), [], "finished"))

    thread = threading.Thread(target=finish)
    thread.start()
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    status = watch(tmp_path / "live", console)
    thread.join()
    assert status == 3
    text = console.export_text()
    assert "3/3 rounds" in text and "finished" in text and "client updates are missing" in text


def test_it_ends_when_nobody_writes(tmp_path: Path) -> None:
    begin(tmp_path).close()
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    assert watch(tmp_path / "live", console) == 1
    assert "no process is writing it" in console.export_text()


def test_a_failed_run_returns_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "bad", "fedavg", [0.1, 0.2], status="failed")
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    assert watch(folder, console) == 1
    assert "no room left" in console.export_text()


def test_what_a_node_wrote_is_neither_markup_nor_a_control_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = begin(tmp_path)
    text = "[bold red]x[/] [/nothing] \x1b[31m\udcff"
    row = {"round": 2, "wall_seconds": 1.0, "failed": 1, "note": f"note {text}", "[/odd]": 1.0}
    failed = {"phase": "train", "client": 7, "status": "failed", "reason": f"Trace\nwhy {text}"}
    record.add_round(row, [failed])
    assert main(["watch", "live", "--results-dir", str(tmp_path), "--once"]) == 0
    record.close()
    out = capsys.readouterr().out
    shown = "[bold red]x[/] [/nothing] \ufffd[31m\ufffd"
    assert f"note {shown}" in out and f"client 7 left out (train): why {shown}" in out
    assert "\x1b" not in out


def test_it_waits_for_a_run_that_has_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, "lite", "fedavg", [0.1, 0.5])

    def run(seconds: float) -> None:
        record = begin(tmp_path)
        config = parse({"run-name": "live", "num-rounds": 3})
        record.finish(summarise(config, record.history(), [], "finished"))

    monkeypatch.setattr("fedsuite.terminal.watch.time.sleep", run)
    status = main(["watch", "live", "--results-dir", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert status == 3
    assert lines[0] == (
        f"Waiting for the run 'live', which has not begun in {tmp_path}; Ctrl-C ends the wait. "
        "Did you mean 'lite'?"
    )


def test_once_does_not_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "live", "--once", "--results-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == f"fedsuite: The run 'live' has not begun in {tmp_path}.\n"


def test_ctrl_c_ends_the_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsuite.terminal.watch.time.sleep", interrupt)
    assert main(["watch", "my run", "--results-dir", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    again = f"fedsuite watch '{tmp_path}/my run'"
    assert said == (
        f"fedsuite: the run has not begun; to watch it: `{again}`\nfedsuite: interrupted\n"
    )
    begin(tmp_path, name="my run").close()
    assert main(["watch", "my run", "--results-dir", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert said.startswith(f"fedsuite: the run is not affected; to watch it: `{again}`\n")
