"""Flower's commands: the settings they are given, and how they answer or fail."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from flwr.common.config import parse_config_args

from fedsuite.config import all_defaults
from fedsuite.flower import commands
from fedsuite.flower.commands import COMMAND, Call, CommandFailed, environment, flwr, write_settings


def test_flower_reads_the_settings_that_were_written(tmp_path: Path) -> None:
    odd = {"run-name": 'quoted "name"', "data-root": "C:\\data", "label-column": "two\nlines"}
    settings = all_defaults() | odd | {"taco.kappa": 1e-05, "resume": True}
    path = write_settings(tmp_path / "settings.toml", settings)
    assert parse_config_args([str(path)]) == settings


def test_the_environment_has_its_own_home_and_forgets_the_command_above(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(COMMAND, "1@2.0")
    made = environment(tmp_path, EXTRA="1")
    assert COMMAND not in made
    assert made["FLWR_HOME"] == str(tmp_path) and made["EXTRA"] == "1"
    assert made["PATH"].startswith(str(Path(sys.executable).parent))


ANSWERS = {
    "an error": (
        'print(\'{"success": false, "error-message": "\\\\nno such run"}\')',
        "no such run",
    ),
    "no JSON": ("print('Traceback'); raise SystemExit(1)", "failed: Traceback"),
    "nothing": ("pass", "failed: "),
    "no answer": ("import time; time.sleep(30)", "did not answer within 1 s"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_command_that_fails_is_quoted(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, expected = ANSWERS[case]
    command = [sys.executable, "-c", source]
    monkeypatch.setattr("fedsuite.flower.commands.executable", lambda name: command)
    with pytest.raises(CommandFailed, match=f"`flwr list hub` .*{expected}"):
        flwr(["list", "hub"], seconds=1.0 if case == "no answer" else 60.0)


def test_a_command_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it has started in a session of its own, which no signal to its group reaches."""
    note = tmp_path / "pid"
    source = f"""
import subprocess, sys, time
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
open({str(note)!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    monkeypatch.setattr(commands, "executable", lambda name: [sys.executable, "-c", source])
    call = Call(["list", "hub"])
    while not note.exists() or not note.read_text():
        time.sleep(0.05)
    started = psutil.Process(int(note.read_text()))
    call.end()
    assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE


def test_where_services_cannot_be_guarded_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "can_identify_peers", lambda: True)
    assert commands.exposure() == ""
    monkeypatch.setattr(commands, "can_identify_peers", lambda: False)
    assert "other users of this machine can reach" in commands.exposure()


def test_services_are_started_through_the_guard() -> None:
    *_, module, service = commands.guarded("flower-superlink")
    assert (module, service) == ("fedsuite.flower.guard", "flower-superlink")
