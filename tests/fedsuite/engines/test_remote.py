"""Submitting to a SuperLink, with Flower's command line replaced: what is printed and returned."""

from __future__ import annotations

import dataclasses
import errno
import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from full_disk import fill_disk
from remote_runs import BEGIN, ROUNDS, asked

from fedsuite.cli.main import main
from fedsuite.cli.run import read_settings
from fedsuite.config import parse, without_paths
from fedsuite.core import scratch
from fedsuite.core.protocol import DEPLOYED, RAY
from fedsuite.records.provenance import provenance
from fedsuite.suites.jobs import run_key
from fedsuite.terminal.progress import follow


def test_a_run_elsewhere_shows_its_lines_and_where_results_are(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place = fake()
    words = ["run", "taco", "results-dir=out", "data-root=data", "num-rounds=2", "--name", "mine"]
    assert main([*words, "--superlink", "hub"]) == 0
    said = capsys.readouterr().out
    assert "\nround 2/2  accuracy 0.7000" in said
    assert "flwr-serverapp" not in said and "Successfully" not in said
    assert "scp -r hub.example.org:/srv/runs/mine runs/" in said
    settings = tomllib.loads((place / "settings.toml").read_text())
    assert settings["results-dir"] == "out" and settings["data-root"] == "data"
    assert settings["run-name"] == "mine"


def test_a_run_elsewhere_that_lacks_updates_says_so_by_its_status(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    told = "fedsuite: incomplete: 33 % of the client updates are missing (2)"
    fake(logs=[[*BEGIN, *ROUNDS, told]])
    assert main(["run", "taco", "num-rounds=1", "--name", "mine", "--superlink", "hub"]) == 3
    said = capsys.readouterr().out
    assert "33 % of the client updates are missing (2)" in said
    assert "taco on digits: 1 round, seed" in said


def test_a_line_with_a_nodes_words_is_shown_without_control_characters(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    told = "fedsuite: node 7 cannot take part: [bold red]x[/] [/nothing] \x1b[31m"
    fake(logs=[[*BEGIN, told, *ROUNDS]])
    assert main(["run", "taco", "num-rounds=1", "--name", "mine", "--superlink", "hub"]) == 0
    said = capsys.readouterr().out
    assert "cannot take part: [bold red]x[/] [/nothing] \ufffd[31m" in said
    assert "\x1b" not in said


def test_anothers_line_does_not_make_a_run_incomplete(fake: Callable[..., Path]) -> None:
    other = ["INFO: download incomplete: 3 of 4", "fedsuite: round 1/1 was incomplete: not so"]
    fake(logs=[[*BEGIN, *ROUNDS, *other]])
    assert main(["run", "taco", "num-rounds=1", "--name", "mine", "--superlink", "hub"]) == 0


def test_results_on_this_machine_are_relative_to_the_current_directory(
    fake: Callable[..., Path],
) -> None:
    place = fake()
    assert main(["run", "taco", "data-root=data", "--superlink", "here", "--name", "mine"]) == 0
    settings = tomllib.loads((place / "settings.toml").read_text())
    assert settings["results-dir"] == str(place / "here" / "runs")
    assert settings["data-root"] == str(place / "here" / "data")


def test_a_failed_run_is_a_failure_though_flower_says_nothing(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*BEGIN, "fedsuite: the run failed: no rows"]
    fake(logs=[lines], statuses=["finished:failed"], details="no rows")
    assert main(["run", "taco", "--superlink", "hub"]) == 1
    captured = capsys.readouterr()
    assert "the run failed: no rows" in captured.out
    assert "ended as 'finished:failed': no rows" in captured.err


def test_a_run_that_is_not_accepted_is_a_sentence(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fake(run={"success": False, "error-message": "\nConnection refused"})
    assert main(["run", "taco", "--superlink", "hub"]) == 2
    said = capsys.readouterr().err
    assert "did not accept the run" in said and "failed: Connection refused" in said


def test_a_stream_that_breaks_is_taken_up_again(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = ["running", "finished:completed"]
    place = fake(logs=[[*BEGIN, *ROUNDS[:2]], [*BEGIN, *ROUNDS]], statuses=statuses)
    assert main(["run", "taco", "num-rounds=2", "--superlink", "hub"]) == 0
    said = capsys.readouterr().out
    assert [said.count(f"round {number}/2") for number in (0, 1, 2)] == [1, 1, 1]
    assert asked(place) == ["run", "log", "list", "log", "list"]


def test_the_settings_of_a_killed_submission_are_cleaned_up_by_the_next(
    fake: Callable[..., Path],
) -> None:
    """They are in a folder with a lock, which tells those that nobody uses any more."""
    place = fake()
    assert main(["run", "taco", "num-rounds=2", "--superlink", "hub"]) == 0
    words = (place / "asked").read_text().splitlines()[0].split()
    settings = Path(words[words.index("--run-config") + 1])
    assert settings.parent.name.startswith(scratch.PREFIX) and not settings.parent.exists()
    assert (place / "beside").read_text().split() == [scratch.LOCK, "app", settings.name]


@pytest.fixture
def visible(fake: Callable[..., Path], experiment: Callable[..., Path]) -> Path:
    """The folder, on this machine, of a run at a SuperLink."""
    folder = experiment(run_name="mine")
    fake(logs=[[*BEGIN, f"fedsuite: results are in {folder}"]])
    return folder


def test_a_folder_that_can_be_seen_is_followed(
    visible: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[Path] = []

    def watch(folder: Path, *rest: Any) -> None:
        followed.append(folder)
        follow(folder, *rest)

    monkeypatch.setattr("fedsuite.engines.remote.follow", watch)
    assert main(["run", "fedavg", "--superlink", "here"]) == 0
    assert followed == [visible]
    assert "accuracy by round" in capsys.readouterr().out
    assert "Start `flwr-serverapp` process" in (visible / "run.log").read_text()


def test_a_log_that_cannot_be_kept_is_said_to_be_with_the_reason(
    visible: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, "run.log", errno.ENOSPC)
    assert main(["run", "fedavg", "--superlink", "here"]) == 0
    said = capsys.readouterr().out
    assert f"{visible}/run.log is not written: No space left on device\n" in said


@pytest.mark.parametrize("reason", ["no rows", "training diverged: the loss was not finite"])
def test_a_resume_is_suggested_unless_the_run_diverged(
    reason: str,
    fake: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    experiment: Callable[..., Path],
) -> None:
    folder = experiment(run_name="mine")
    (folder / "summary.json").write_text(json.dumps({"status": "failed", "reason": reason}))
    fake(logs=[[*BEGIN, f"fedsuite: results are in {folder}"]], statuses=["finished:failed"])
    assert main(["run", "fedavg", "--superlink", "here"]) == 1
    captured = capsys.readouterr()
    assert reason in captured.err
    command = f"fedsuite: to resume it: `fedsuite resume {folder} --superlink here`"
    assert (command in captured.err) == (reason == "no rows")


def test_a_run_of_the_superlinks_user_is_resumed_though_it_cannot_be_locked(
    fake: Callable[..., Path], experiment: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = experiment(run_name="mine")
    (folder / "summary.json").unlink()
    (folder / ".lock").unlink()
    (folder / ".lock").mkdir()  # cannot be opened, whoever one is
    place = fake()
    assert main(["resume", str(folder), "--superlink", "here"]) == 2
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert main(["resume", str(folder), "--superlink", "here"]) == 0
    settings = tomllib.loads((place / "settings.toml").read_text())
    assert (settings["run-name"], settings["results-dir"]) == ("mine", str(folder.parent))


def test_resuming_a_run_elsewhere(fake: Callable[..., Path]) -> None:
    place = fake()
    words = ["resume", "mine", "--results-dir", "/srv/runs", "--superlink", "hub"]
    assert main(words) == 0
    settings = tomllib.loads((place / "settings.toml").read_text())
    assert settings["resume"] is True
    assert (settings["run-name"], settings["results-dir"]) == ("mine", "/srv/runs")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "taco", "--superlink", "hup"], "Did you mean 'hub'? Choices: here, hub."),
        (["run", "taco", "num-rounds=many", "--superlink", "hub"], "'many' for num-rounds"),
        (["run", "taco", "--superlink", "hub", "--engine", "ray"], "leave --engine"),
        (["resume", "none", "--superlink", "here"], "There is no run 'none'"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(
    fake: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    expected: str,
) -> None:
    place = fake()
    assert main(words) == 2
    assert expected in capsys.readouterr().err
    assert not (place / "asked").exists()


def test_a_deployed_run_is_not_resumed_as_a_simulation(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fake() / "here" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"meta": {"engine": "deployed"}}))
    for engine in ([], ["--engine", "inline"], ["--engine", "ray"]):
        assert main(["resume", "mine", *engine]) == 2
        assert "fedsuite resume mine --superlink NAME" in capsys.readouterr().err


def test_paths_of_another_machine_stay_as_typed() -> None:
    assert read_settings([], ["data-root=data"], here=False) == {"data-root": "data"}


def test_the_connection_is_recorded_to_repeat_the_run(fake: Callable[..., Path]) -> None:
    """The run on the SuperLink's machine does not know by what name it was submitted."""
    place = fake()
    assert main(["run", "taco", "num-rounds=2", "--superlink", "hub", "--name", "mine"]) == 0
    settings = tomllib.loads((place / "settings.toml").read_text())
    config = parse(settings, foreign="default")
    command = "fedsuite run taco num-rounds=2 --superlink hub"
    assert provenance(config, DEPLOYED, "")["command"] == command
    plain = dataclasses.replace(config, superlink="")
    unnamed = "fedsuite run taco num-rounds=2 --superlink NAME"
    assert provenance(plain, DEPLOYED, "")["command"] == unnamed
    assert provenance(plain, RAY, "")["command"] == "fedsuite run taco num-rounds=2"
    assert run_key(config) == run_key(plain)
    assert without_paths(config).superlink == ""


def test_superlink_is_an_option_and_no_setting(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place = fake()
    assert main(["run", "taco", "superlink=hub"]) == 2
    assert "write --superlink hub" in capsys.readouterr().err
    assert not (place / "asked").exists()


def test_commands_about_a_run_elsewhere_are_quoted(
    fake: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line.replace("/srv/runs/mine", "/srv/my runs/it's") for line in ROUNDS]
    fake(logs=[[*BEGIN, *lines]])
    words = ["run", "taco", "num-rounds=2", "--superlink", "hub", "--name", "it's"]
    assert main(words) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    copy = next(line for line in printed if "scp -r" in line).rpartition("&& ")[2]
    assert shlex.split(copy) == ["scp", "-r", "hub.example.org:/srv/my runs/it's", "runs/"]
    assert shlex.split(printed[-1]) == ["fedsuite", "show", "it's"]
