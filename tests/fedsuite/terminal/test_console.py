"""What is piped is whole: no path, name or command is cut or folded."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.records.reader import read_run
from fedsuite.terminal.show import show

ROOT = Path(__file__).parents[3]
NAME = "a-run-with-a-name-of-a-hundred-letters-" + "x" * 61


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs in a folder deep enough for paths beyond 80 columns, on a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    folder = tmp_path / "a-folder-of-a-name-that-is-rather-long" / "runs of this week"
    write_run(folder, NAME, "fedavg", [0.1, 0.5], seed=1)
    write_run(folder, "left", "fedprox", [0.1, 0.5], status="", num_rounds=9, seed=1)
    write_run(folder, "other", "fedprox", [0.1, 0.5], seed=1)
    return folder


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    main(list(words))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_piped_output_is_not_cut(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--results-dir", str(results)]
    shown = printed(capsys, "show", NAME, *here)
    assert any(line.endswith(f"  {results / NAME}") for line in shown)
    assert any(line.endswith(f"{read_run(results / NAME).meta['command']}") for line in shown)
    listed = printed(capsys, "list", "runs", *here)
    assert [line.split()[0] for line in listed] == [NAME, "left", "other"]
    left = printed(capsys, "watch", "left", "--once", *here)
    assert left[-1].endswith(f"resume it with `fedsuite resume '{results / 'left'}'`")
    compared = printed(capsys, "compare", NAME, "other", *here)
    assert any("fedprox" in line and "run more seeds" in line for line in compared)
    settings = printed(capsys, "settings", "personal-eval")
    assert "clients hold out test samples" in settings[1]
    everything = [*shown, *listed, *left, *compared, *settings]
    assert not any("…" in line for line in everything)


@pytest.mark.parametrize("width", [30, 80])
def test_a_terminal_shows_whole_paths_and_commands(results: Path, width: int) -> None:
    screen = io.StringIO()
    show(read_run(results / NAME), Console(file=screen, force_terminal=True, width=width))
    text = screen.getvalue()
    assert str(results / NAME) in text and "…" not in text
    assert read_run(results / NAME).meta["command"] in text


def test_one_round_is_not_called_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--results-dir", str(tmp_path)]
    write_run(tmp_path, "one", "fedavg", [0.1, 0.5], status="failed", num_clients=1)
    printed(capsys, "watch", "one", "--once", *one)
    assert read_run(tmp_path / "one").note.startswith("1 of 1 round;")
    assert any("1/1 round" in line for line in printed(capsys, "watch", "one", "--once", *one))
    shown = " ".join(printed(capsys, "show", "one", *one))
    assert ", 1 client, seed" in shown and "1 clients" not in shown and "1 rounds" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("words", [["settings"], ["list", "runs"]])
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(
    words: list[str], results: Path
) -> None:
    """As ``fedsuite settings | head -1``."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fedsuite.cli", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=60) in (0, 1) and said == ""
