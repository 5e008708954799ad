"""Sweeps from the command line: run once, resumed after any end, the same table in the end."""

from __future__ import annotations

import io
import json
import signal
import time
from pathlib import Path
from typing import Any

import processes
import pytest
from suites_here import final_table, run_here

import fedsuite
from fedsuite.cli import options
from fedsuite.cli.main import main
from fedsuite.core.files import read_document
from fedsuite.records.folder import RunFolder
from fedsuite.suites import process_group
from fedsuite.suites.live_table import LiveTable, SuiteRun
from fedsuite.suites.run_estimate import Estimate, Estimator

SMALL = ["model=mlp", "num-clients=2", "local-steps=10", "num-rounds=2"]
SWEEP = ["run", "fedavg,taco", "seed=1,2", *SMALL, "--name", "mine"]
FILE = """
title = "Two"
metric = "final_accuracy"
rows = "algo"
columns = []
runs = 2
base = { model = "mlp", num-clients = 2, local-steps = 2, num-rounds = 2 }
axes = { seed = [1], algo = ["fedavg", "faulty:ALL"] }
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no processes for the runs of sweeps."""
    monkeypatch.setattr(process_group.ProcessGroup, "_spawn", run_here)


def runs_of(sweep: str) -> list[RunFolder]:
    folder = Path("runs", sweep)
    return [RunFolder(folder / run["name"]) for run in read_document(folder / "suite.json")["runs"]]


@pytest.fixture(scope="module")
def whole_table(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The table of the sweep, never interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group.ProcessGroup, "_spawn", run_here)
        patch.chdir(tmp_path_factory.mktemp("whole"))
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        assert main(SWEEP) == 0
    return final_table(out.getvalue())


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_an_interrupted_sweep_ends_with_the_table_of_one_never_stopped(
    whole_table: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is noticed after the third run has begun, which here is done at once."""
    update = LiveTable.update

    def interrupt(view: LiveTable) -> None:
        update(view)
        if view.runs[1].state.done:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LiveTable, "update", interrupt)
        patch.setattr(process_group.ProcessGroup, "stop", lambda group: None)
        assert main([*SWEEP, "--jobs", "1"]) == 130
    said = capsys.readouterr()
    again = "fedsuite run fedavg,taco seed=1,2 " + " ".join(SMALL) + " --name mine --jobs 1"
    assert said.err.splitlines()[0] == f"fedsuite: to resume it: `{again}`"
    assert "2 done, 0 failed" in said.out
    assert [run.state.done for run in runs_of("mine")] == [True, True, True, False]
    assert main(SWEEP) == 0
    out = capsys.readouterr().out
    assert "4 runs, 3 of them done before" in out and final_table(out) == whole_table


@pytest.mark.slow
def test_a_sweep_ended_by_signals_ends_with_the_table_of_one_never_stopped(
    whole_table: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGINT, then SIGKILL, each as soon as one more run has begun; the rest without processes."""
    begun = 0

    def one_more() -> bool:
        known = runs_of("mine") if Path("runs/mine/suite.json").exists() else []
        return sum(run.exists for run in known) > begun

    for number in (signal.SIGINT, signal.SIGKILL):
        process = processes.start([*SWEEP, "--jobs", "1"], Path.cwd())
        try:
            deadline = time.monotonic() + 120
            while not one_more() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) in (130, -signal.SIGKILL)
        finally:
            processes.kill_all(process)
        begun = sum(run.exists for run in runs_of("mine"))
    assert 0 < sum(not run.state.done for run in runs_of("mine"))
    monkeypatch.setattr(process_group.ProcessGroup, "_spawn", run_here)
    capsys.readouterr()
    assert main(SWEEP) == 0
    assert final_table(capsys.readouterr().out) == whole_table


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_a_damaged_sweep_ends_with_the_table_of_one_that_is_whole(
    whole_table: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A summary is cut, a history with and without its summary, and the manifest."""
    assert main(SWEEP) == 0
    assert final_table(capsys.readouterr().out) == whole_table
    summary, history, both, _ = runs_of("mine")
    for path in (summary.summary_file, history.history_file, both.history_file):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    both.summary_file.unlink()
    Path("runs/mine/suite.json").write_text('{"runs": [')
    assert main(SWEEP) == 0
    out = capsys.readouterr().out
    assert "4 runs, 2 of them done before" in out and final_table(out) == whole_table
    assert f"{both.name} starts anew" in out and out.count("starts anew") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_a_sweep_from_python_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """One more seed joins the others in the folder."""
    small: dict[str, Any] = {"model": "mlp", "num_clients": 2, "local_steps": 2, "num_rounds": 1}
    runs = fedsuite.sweep("fedavg", lr=[0.01, 0.1], seed=[1], **small, progress=False)
    assert runs.exit_status == 0 and capsys.readouterr().out == ""
    assert list(runs.runs["lr"]) == [0.01, 0.1] and set(runs.runs["state"]) == {"finished"}
    words = [f"{key.replace('_', '-')}={value}" for key, value in small.items()]
    assert main(["run", "fedavg", "lr=0.01,0.1", "seed=1,2", *words]) == 0
    out = capsys.readouterr().out
    assert "4 runs, 2 of them done before" in out
    assert len(fedsuite.SuiteRuns(runs.path, 0).runs) == 4
    table = fedsuite.SuiteRuns(runs.path, 0).table
    assert list(table["lr"]) == ["0.01", "0.1"] and list(table["seeds"]) == [2, 2]
    summaries = [read_document(run.summary_file) for run in runs_of(runs.path.name)]
    values = [summary["final_accuracy"] for summary in summaries]
    assert table["mean"][0] == pytest.approx(100 * (values[0] + values[1]) / 2)
    assert main(["compare", str(runs.path)]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_a_suite_ends_as_json_with_its_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))
    Path("two.toml").write_text(FILE)
    assert main(["suite", "two.toml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    good, bad = found["runs"]
    assert (good["state"], bad["state"], found["exit_status"]) == ("finished", "failed", 1)
    assert "nobody is home" in bad["note"] and bad["labels"]["algo"] == "faulty:ALL"
    ours, none = found["table"]
    assert ours["mean"] == pytest.approx(100 * good["metrics"]["final_accuracy"])
    assert (ours["seeds"], none["seeds"], none["mean"]) == (1, 0, None)
    assert main(["suite", "two.toml"]) == 1
    *_, summary, failed, report = capsys.readouterr().out.splitlines()
    assert "1 done, 1 failed" in summary and "nobody is home" in failed and "report" in report


def test_failures_are_told_after_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(group: process_group.ProcessGroup, run: SuiteRun) -> None:
        run.start()
        run.end("nobody is home.")

    def interrupt(view: LiveTable) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_group.ProcessGroup, "start", fail)
    monkeypatch.setattr(LiveTable, "update", interrupt)
    assert main([*SWEEP, "--jobs", "1"]) == 130
    first, summary, failed = capsys.readouterr().out.splitlines()
    assert "0 done, 1 failed" in summary and first.startswith("Sweep of algo, seed: 4 runs")
    assert failed.startswith(f"failed: {runs_of('mine')[0].name}: nobody is home.")


def test_a_dry_run_lists_runs_and_starts_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SWEEP, "--dry-run", "--jobs", "1"]) == 0
    *runs, total = capsys.readouterr().out.splitlines()
    assert len(runs) == 5 and all("a measured step" in line for line in runs[1:])
    assert total.startswith("Sweep of algo, seed: 4 runs; about ") and "of memory" in total
    assert main(["run", "fedavg", *SMALL, "--name", "one", "--dry-run"]) == 0
    why, _, one, total = capsys.readouterr().out.splitlines()
    assert why.startswith("engine inline") and one.startswith("one ") and " new " in one
    assert total.startswith("fedavg on digits: 1 run; about ")
    assert main(["suite", "demo", "--scale", "small", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and "(small scale, not the paper's setting): 6 runs" in lines[-1]
    assert not Path("runs").exists()


def test_missing_datasets_are_named_at_once_and_nothing_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", "fedavg", "dataset=a.csv,digits,b.csv", "model=mlp"]
    for end in ([], ["--dry-run"]):
        assert main([*words, *end]) == 2
        said = capsys.readouterr().err
        assert "The data of 2 datasets cannot be opened" in said
        assert "a.csv" in said and "b.csv" in said
        assert not Path("runs").exists()


def test_a_missing_file_and_a_dataset_that_cannot_be_fetched_are_named_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mirror").mkdir()
    words = ["run", "fedavg", "dataset=digits,mnist,no/such.csv", "model=mlp"]
    assert main([*words, f"data-root={tmp_path / 'mirror'}"]) == 2
    said = capsys.readouterr().err
    assert "The data of 2 datasets cannot be opened" in said
    assert "- mnist: " in said and "such.csv" in said


@pytest.mark.parametrize(
    ("answer", "status"), [(None, 2), ("n\n", 2), ("\n", 2), ("y\n", 0), ("Yes\n", 0)]
)
def test_over_an_hour_is_asked_for(
    answer: str | None,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return answer is not None

    monkeypatch.setattr("sys.stdin", Keyboard(answer or ""))
    monkeypatch.setattr(Estimator, "estimate", lambda *given: Estimate(4000.0, "this test"))
    monkeypatch.setattr("fedsuite.suites.runner._work", lambda runs, group, view: None)
    assert main([*SWEEP, "--jobs", "1"]) == status
    said = capsys.readouterr().err
    expected = "Add --yes to start" if answer is None else "This takes about 4 h 26 min. Start?"
    assert expected in said and Path("runs").exists() == (status == 0)
    assert main([*SWEEP, "--jobs", "1", "--yes"]) == 0


def test_an_hour_is_started_at_once() -> None:
    options.confirm_long(3600.0, "about 1 h 00 min")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "fedavg,fedavgg"], "fedavgg"),
        (["run", "fedavg", "seed=1,"], "invalid value '1,' for seed: a value between commas"),
        (["run", "fedavg", "seed=1,2", "--nodes", "2"], "leave --superlink and --nodes out"),
        (["run", "fedavg", "seed=1,2", "--engine", "auto"], "invalid value 'auto' for --engine"),
        (["run", "fedavg", "seed=1,2", "resume=true"], "'resume' has no effect on a sweep"),
        (["run", "fedavg", "seed=1,2", "data-root=away"], "away' for data-root: it is not"),
        (["run", "fedavg", "seed=1,2", "--name", "a/b"], "invalid value 'a/b' for run-name"),
        (["run", "fedavg", "--jobs", "2"], "--jobs has no effect on one run"),
        (["run", "fedavg", "--superlink", "x", "--dry-run"], "leave --superlink and"),
        (["partition", "dirichlet-alpha=0.1,0.5"], "it takes one value here"),
        (["suite", "demo", "--json", "--dry-run"], "choose one"),
    ],
)
def test_mistakes_end_at_once(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert expected in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_folder_of_something_else_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/suite.json").write_text('{"command": "fedsuite suite demo"}')
    Path("runs/b").mkdir()
    Path("runs/b/config.json").write_text("{}")
    for name, what in (("a", "a suite"), ("b", "a run")):
        assert main(["run", "fedavg", "seed=1,2", "--name", name]) == 2
        assert f"is the folder of {what}" in capsys.readouterr().err
