"""Real processes that are killed or started twice: no update is lost, no result is another's."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import processes
import psutil
import pytest

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.processes import Child
from fedsuite.records import writer
from fedsuite.records.folder import RunFolder

# Freeloaders keep state on disk and change the global model with it.
ROUNDS = 12
SETTINGS = ["num-clients=6", "model=mlp", "freeloaders=2", "lr=0.02", "local-epochs=20"]
UNDISTURBED = dict(pair.split("=") for pair in SETTINGS) | {"num-rounds": str(ROUNDS)}


def start(folder: Path, engine: str, name: str, rounds: int = ROUNDS) -> Child:
    words = ["run", "fedavg", *SETTINGS, f"num-rounds={rounds}", "--name", name, "--engine", engine]
    return processes.start(words, folder)


def await_lines(process: Child, path: Path, count: int) -> None:
    while process.poll() is None and processes.lines_in(path) < count:
        time.sleep(0.02)


def end(process: Child) -> tuple[int, str]:
    try:
        out, _ = process.communicate(timeout=300)
    finally:
        processes.kill_all(process)
    return process.returncode, out.decode(errors="replace")


def workers(process: Child) -> list[psutil.Process]:
    found = []
    for member in process.identity.family():
        with suppress(psutil.NoSuchProcess):
            found += [member] if member.name().startswith("ray::ClientApp") else []
    return found


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.ray
def test_of_two_runs_of_one_name_one_is_refused_and_one_replaces_a_killed_worker(
    tmp_path: Path, experiment: Callable[..., Path]
) -> None:
    """The clients of the killed worker are computed again, to the bits of an undisturbed run."""
    run = RunFolder(tmp_path / "runs" / "twin")
    commands = [start(tmp_path, "ray", "twin") for _ in range(2)]
    while any(p.poll() is None for p in commands) and not processes.lines_in(run.history_file):
        time.sleep(0.02)
    (ours,) = (process for process in commands if run.writer.startswith(f"{process.pid}@"))
    worker = workers(ours)[0]
    await_lines(ours, run.history_file, 2)
    worker.kill()
    ended = sorted(end(process) for process in commands)
    assert [status for status, _ in ended] == [0, 2], ended[0][1]
    assert "was started by another command at the same time" in ended[1][1]
    assert "twin  finished" in ended[0][1] and "twin  finished" not in ended[1][1]
    rows = read_lines(run.history_file)
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
    assert [row.get("failed") for row in rows] == [None, *[0] * ROUNDS]
    notes = [row["note"] for row in rows if "note" in row]
    assert len(notes) == 1 and "its clients are sent again" in notes[0]
    assert read_document(run.summary_file)["missing_updates"] == 0.0
    assert model(run.path) == model(experiment("fedavg", **UNDISTURBED))


@pytest.mark.slow
def test_a_resume_beside_a_live_run_is_refused_and_changes_nothing(
    tmp_path: Path,
    experiment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(writer, "LOCK_WAIT", 0.3)
    run = RunFolder(tmp_path / "runs" / "live")
    process = start(tmp_path, "inline", "live")
    await_lines(process, run.history_file, 3)
    process.send_signal(signal.SIGSTOP)
    status = main(["resume", str(run.path)])
    process.send_signal(signal.SIGCONT)
    assert status == 2 and "is still being written by another process" in capsys.readouterr().err
    status, out = end(process)
    assert status == 0, out
    assert model(run.path) == model(experiment("fedavg", **UNDISTURBED))
