"""Ctrl-C and SIGTERM to a command that submits a run to a SuperLink, or follows it there."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from remote_runs import BEGIN, ROUNDS, asked

from fedsuite.cli.main import main


@pytest.fixture(autouse=True)
def heed_ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def signal_in_round_0(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> list[str]:
    """Send this process a signal when round 0 is shown; return a list that gets what is shown."""
    shown: list[str] = []

    def say(self: Any, text: str) -> None:
        shown.append(text)
        if text.startswith("round 0"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr("fedsuite.engines.remote.Follower._say", say)
    return shown


def test_ctrl_c_stops_the_run(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake(logs=[[*BEGIN, *ROUNDS[:2], "WAIT"]])
    shown = signal_in_round_0(monkeypatch, signal.SIGINT)
    assert main(["run", "taco", "--superlink", "hub", "--name", "mine"]) == 130
    assert asked(place) == ["run", "log", "stop"]
    assert "fedsuite resume mine --superlink hub" in shown[-1]


def test_ctrl_c_while_the_run_is_submitted_stops_it_too(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer with the run's id is waited for, since without it nobody could stop the run."""
    place = fake(run_seconds=1.0)

    def interrupt() -> None:
        while not (place / "asked").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(["run", "taco", "--superlink", "hub"]) == 130
    thread.join()
    assert asked(place) == ["run", "stop"]
    said = capsys.readouterr().out
    assert "waiting for the run's id, to stop it, 20 s at most" in said
    assert "stopped run 77" in said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_submission_without_an_answer_is_given_up(
    number: int,
    status: int,
    fake: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command ends long before the hour after which ``flwr`` would, and leaves none behind."""
    monkeypatch.setattr("fedsuite.engines.remote.LAST_SECONDS", 0.1)
    place = fake(run_seconds=3600.0)

    def interrupt() -> None:
        while not (place / "settings.toml").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(["run", "taco", "--superlink", "hub"]) == status
    thread.join()
    assert asked(place) == ["run"]
    said = capsys.readouterr().out
    assert "the run may have been submitted; `flwr list hub` shows whether it was" in said
    assert "goes on" not in said and "stopped" not in said
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if "fake_flwr.py" in " ".join(child.cmdline())] == []


def test_sigterm_before_there_is_a_run_says_nothing_of_it(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    shown: list[str] = []

    def terminate(*rest: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("fedsuite.engines.remote.submit", terminate)
    monkeypatch.setattr(
        "fedsuite.engines.remote.Follower._say", lambda self, text: shown.append(text)
    )
    assert main(["run", "taco", "--superlink", "hub"]) == 143
    assert shown == []


def test_sigterm_leaves_the_run_to_its_superlink(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake(logs=[[*BEGIN, *ROUNDS[:2], "WAIT"]])
    shown = signal_in_round_0(monkeypatch, signal.SIGTERM)
    assert main(["run", "taco", "--superlink", "hub", "--name", "mine"]) == 143
    assert asked(place) == ["run", "log"]
    assert shown[-1] == "the run 77 goes on; `flwr log 77 hub` follows it"


def test_ctrl_c_names_another_results_folder_of_the_superlink(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(logs=[[*BEGIN, *ROUNDS[:2], "WAIT"]])
    shown = signal_in_round_0(monkeypatch, signal.SIGINT)
    words = ["run", "taco", "results-dir=/srv/my runs", "--superlink", "hub", "--name", "my run"]
    assert main(words) == 130
    command = shown[-1].partition("`")[2].rstrip("`")
    words = ["resume", "my run", "--results-dir", "/srv/my runs", "--superlink", "hub"]
    assert shlex.split(command) == ["fedsuite", *words]
