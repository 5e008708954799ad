"""Suites as a user runs them: run once, resumed after any end, failures survived."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import kill_all, kill_when, lines_in, start
from rich.console import Console
from suites_here import run_here

from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.core.files import locked, read_document, read_lines, write_json
from fedsuite.engines.inline import run_inline
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.suites import process_group
from fedsuite.suites.definition import read_suite
from fedsuite.suites.jobs import plan_jobs
from fedsuite.suites.live_table import LiveTable, SuiteRun

HEAD = """
title = "Two methods"
metric = "final_accuracy"
rows = "algo"
columns = ["dataset"]
runs = {runs}
runs-small = 1

[base]
model = "mlp"
num-clients = 2
num-rounds = {rounds}
local-steps = 4

[axes]
seed = [1]
algo = {algos}
dataset = ["digits"]

[small]
num-rounds = 1

[small.axes]
algo = [{algos[0]!r}]
"""
TIMES = {"seconds", "wall_seconds", "compute_seconds", "client_compute_seconds"} | {
    "cpu_seconds",
    "client_cpu_seconds",
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parents[2] / "helpers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no processes for the runs of suites."""
    monkeypatch.setattr(process_group.ProcessGroup, "_spawn", run_here)


def write(name: str, algos: list[str], rounds: int = 2) -> None:
    Path(f"{name}.toml").write_text(HEAD.format(runs=len(algos), rounds=rounds, algos=algos))


def manifest(folder: str) -> dict[str, Any]:
    return read_document(Path("runs") / folder / "suite.json")


def run_folders(folder: str) -> list[Path]:
    return [Path("runs") / folder / run["name"] for run in manifest(folder)["runs"]]


def contents(folder: Path) -> list[Any]:
    """All that a run leaves behind but times."""
    rows = [read_lines(folder / name) for name in ("history.jsonl", "clients.jsonl")]
    plain = [[{k: v for k, v in row.items() if k not in TIMES} for row in part] for part in rows]
    return [*plain, (folder / "model.safetensors").read_bytes()]


@pytest.mark.slow
def test_a_suite_runs_once_survives_a_failure_and_shares_what_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("mine", ["fedavg", "faulty:ALL"])
    assert main(["suite", "mine.toml"]) == 1
    out = capsys.readouterr().out
    assert "Two methods: 2 runs, 0 of them done before" in out and "1 done, 1 failed" in out
    assert "nobody is home" in out
    good, bad = run_folders("mine")
    assert read_document(good / "summary.json")["status"] == "finished"
    assert read_document(bad / "summary.json")["status"] == "failed"

    before = (good / "summary.json").stat().st_mtime_ns
    assert main(["suite", "mine.toml", "--only", "algo=fedavg"]) == 0
    out = capsys.readouterr().out
    assert "1 run, 1 of them done before" in out and "started" not in out
    assert (good / "summary.json").stat().st_mtime_ns == before
    assert len(manifest("mine")["runs"]) == 2, "runs begun earlier stay listed"

    write("other", ["fedavg"])
    assert main(["suite", "other.toml"]) == 0
    assert "1 of them done before" in capsys.readouterr().out
    assert contents(run_folders("other")[0]) == contents(good)


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes", "no_pictures")
def test_a_run_that_lacks_updates_is_done_marked_and_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Clients 1 and 2 fail in every round."""
    write("mine", ["faulty:SOME"])
    told = "% of the client updates are missing"
    assert main(["suite", "mine.toml"]) == 3
    out = capsys.readouterr().out
    assert "1 done, 0 failed" in out and out.count(told) == 2  # when it ends, and at the end
    assert main(["suite", "mine.toml"]) == 3
    out = capsys.readouterr().out
    assert "1 of them done before" in out and "started" not in out and out.count(told) == 1
    assert main(["report", "runs/mine", "-o", "report"]) == 0
    assert told in Path("report/report.md").read_text()


@pytest.mark.slow
def test_an_interrupted_and_killed_suite_ends_as_one_never_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("mine", ["fedavg"], rounds=150)
    update = LiveTable.update

    def interrupt(view: LiveTable) -> None:
        update(view)
        if len(view.runs[0].history) > 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LiveTable, "update", interrupt)
        assert main(["suite", "mine.toml"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said == ["fedsuite: to resume it: `fedsuite suite mine.toml`", "fedsuite: interrupted"]
    below = psutil.Process().children(recursive=True)
    assert not [child for child in below if "fedsuite.cli" in child.cmdline()]
    (folder,) = run_folders("mine")
    seen = lines_in(folder / "history.jsonl")
    assert seen > 3 and RunFolder(folder).state is RunState.INTERRUPTED

    process = start(["suite", "mine.toml"], Path.cwd())
    try:
        deadline = time.monotonic() + 120
        while lines_in(folder / "history.jsonl") <= seen and time.monotonic() < deadline:
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert children and not alive
    finally:
        kill_all(process)
    assert not RunFolder(folder).state.done, "it was killed midway"

    assert main(["suite", "mine.toml"]) == 0
    assert "resumed after round" in capsys.readouterr().out
    config = read_document(folder / "config.json")
    values = {k: v for k, v in config.items() if k not in ("meta", "run-id")}
    alone = run_inline(parse(values | {"run-name": "alone", "results-dir": "alone"}))
    assert contents(folder) == contents(alone)


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_damaged_runs_do_not_stop_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    """A summary is written again; what cannot be resumed starts anew, beside what is left of it."""
    write("mine", ["fedavg", "avg", "local", "fedprox"])
    assert main(["suite", "mine.toml"]) == 0
    whole, config, summary, history = run_folders("mine")
    before = (whole / "summary.json").read_bytes()
    anew = [contents(config), contents(history)]
    (config / "config.json").write_text("[1]")
    (config / "summary.json").write_text('"finished"')
    (summary / "summary.json").write_text('{"status": ["finished"]}')
    (history / "summary.json").unlink()
    (history / "history.jsonl").write_text('{"round": "1"}\n')
    (Path("runs") / "other").mkdir()
    (Path("runs") / "other" / "suite.json").write_text("[]")
    capsys.readouterr()
    assert main(["suite", "mine.toml"]) == 0
    out = capsys.readouterr().out
    assert "4 done, 0 failed" in out and "Traceback" not in out
    assert f"{config.name} starts anew" in out and "holds no JSON object" in out
    assert f"{history.name} starts anew" in out and "line 1 of history.jsonl" in out
    assert (whole / "summary.json").read_bytes() == before
    assert RunFolder(summary).state is RunState.FINISHED
    assert [contents(config), contents(history)] == anew
    aside = history.with_name(f".damaged-1-{history.name}")
    assert (aside / "history.jsonl").read_text() == '{"round": "1"}\n'


@pytest.mark.slow
def test_a_killed_suite_gives_the_report_of_one_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte: the page, its figures and its tables, once all times are the same."""
    reports = []
    for place in ("killed", "whole"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        write("mine", ["taco", "fedadw"], rounds=30)
        if place == "killed":
            assert kill_midway(), "it was over before it could be killed"
        else:
            monkeypatch.setattr(process_group.ProcessGroup, "_spawn", run_here)
        assert main(["suite", "mine.toml"]) == 0
        for folder in run_folders("mine"):
            same_times(folder)
        assert main(["report", "runs/mine", "-o", "report"]) == 0
        files = sorted(path for path in Path("report").rglob("*") if path.is_file())
        reports.append({str(path): path.read_bytes() for path in files})
    killed, whole = reports
    assert killed.keys() == whole.keys() and len(whole) > 10
    assert [name for name in whole if killed[name] != whole[name]] == []


def kill_midway() -> bool:
    """Start the suite and ``kill -9`` it and its runs when each has a few rounds."""

    def few_rounds() -> bool:
        folders = run_folders("mine") if Path("runs/mine/suite.json").exists() else []
        seen = [lines_in(folder / "history.jsonl") for folder in folders]
        return bool(seen) and max(seen) > 5

    kill_when(start(["suite", "mine.toml"], Path.cwd()), few_rounds, delay=0.0)
    ended = [(folder / "summary.json").exists() for folder in run_folders("mine")]
    return few_rounds() and not all(ended)


def same_times(folder: Path) -> None:
    """Set every time a run recorded to one second, of which it had the core all along."""

    def is_timing(name: str) -> bool:
        return "seconds" in name or name == "cpu_share"

    def still(row: dict[str, Any]) -> dict[str, Any]:
        return {k: 1.0 if is_timing(k) and v is not None else v for k, v in row.items()}

    for name in ("history.jsonl", "clients.jsonl"):
        rows = [json.dumps(still(row)) for row in read_lines(folder / name)]
        (folder / name).write_text("\n".join(rows) + "\n")
    write_json(folder / "summary.json", still(read_document(folder / "summary.json")))


def test_the_small_scale_is_named_in_every_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("mine", ["fedavg"])

    def pretend(group: process_group.ProcessGroup, run: SuiteRun) -> None:
        run.start()
        run.end("")

    monkeypatch.setattr(process_group.ProcessGroup, "start", pretend)
    monkeypatch.setattr(process_group.ProcessGroup, "poll", lambda group, run: None)
    assert main(["suite", "mine.toml", "--scale", "small"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert all("small scale" in line for line in lines[::2])
    assert last.endswith("fedsuite report " + str(Path("runs/mine-small").absolute()))
    assert manifest("mine-small")["scale"] == "small"


def test_two_calls_of_one_suite_do_not_run_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    write("mine", ["fedavg"])
    Path("runs/mine").mkdir(parents=True)
    with locked(Path("runs/mine/.lock"), "this test holds it"):
        assert main(["suite", "mine.toml"]) == 2
    assert "being run by another process" in capsys.readouterr().err


def test_a_run_is_resumed_with_the_data_root_of_this_call() -> None:
    write("mine", ["fedavg"])
    suite = read_suite(Path("mine.toml"))
    (job,), _ = plan_jobs(suite, suite.plans, Path("runs"), "/new")
    assert "resume=false" in process_group.run_words(job)
    job.folder.mkdir(parents=True)
    write_json(job.folder / "config.json", job.config.flat() | {"data-root": "/old"})
    words = process_group.run_words(job)
    assert words[:2] == ["run", "fedavg"] and words[-2:] == ["--name", job.name]
    assert "resume=true" in words and "data-root=/new" in words


def test_how_to_resume_is_no_reason() -> None:
    write("mine", ["fedavg"])
    suite = read_suite(Path("mine.toml"))
    (job,), _ = plan_jobs(suite, suite.plans, Path("runs"), "")
    job.folder.mkdir(parents=True)
    said = ["OSError: disk", "fedsuite: the run failed; its folder is /x"]
    said += ["fedsuite: to resume it: `fedsuite resume x`", ""]
    job.files.console_file.write_text("\n".join(said))
    assert process_group.reason_of_failure(job, 1) == "OSError: disk"
    job.files.console_file.write_text("\n".join(said[1:]))
    assert process_group.reason_of_failure(job, 1) == "ended with status 1"


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes")
def test_a_damaged_neighbour_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("cut", "{"), ("poor", '{"runs": [{"name": "x"}]}'), ("odd", "[1]")):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "suite.json").write_text(text)
    write("mine", ["fedavg"])
    assert main(["suite", "mine.toml"]) == 0
    (folder,) = run_folders("mine")
    before = contents(folder)
    (folder / "summary.json").write_text("{")
    assert main(["suite", "mine.toml"]) == 0
    assert "0 of them done before" in capsys.readouterr().out
    assert contents(folder) == before
    assert read_document(folder / "summary.json")["status"] == "finished"


def test_cores_are_not_oversubscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "cores", lambda: 4)
    assert process_group.group_width(0, "inline", 1) == 4
    assert process_group.group_width(3, "inline", 1) == 3
    assert process_group.group_width(9, "inline", 1) == 4
    assert process_group.group_width(0, "ray", 1) == 1
    assert (
        process_group.ProcessGroup("ray", 2).nodes,
        process_group.ProcessGroup("inline", 2).nodes,
    ) == (2, 1)
    assert process_group.environment(1)["OMP_NUM_THREADS"] == "1"


def test_a_terminal_shows_one_live_table() -> None:
    write("mine", ["fedavg", "fedprox", "taco"])
    suite = read_suite(Path("mine.toml"))
    mine, _ = plan_jobs(suite, suite.plans, Path("runs"), "")
    states = (RunState.FINISHED, RunState.WAITING, RunState.WAITING)
    runs = [SuiteRun(job, state) for job, state in zip(mine, states, strict=True)]
    mine[1].folder.mkdir(parents=True)
    row = '{"round": 1, "accuracy": 0.5, "wall_seconds": 61.0}\n'
    (mine[1].folder / "history.jsonl").write_text(row)
    runs[1].start()
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=30)
    with LiveTable(console, suite, runs) as view:
        view.update()
    shown = screen.getvalue()
    assert "time left" in shown and "1 running, 1 waiting, 1 done" in shown
    assert "1/2" in shown and "0.5000" in shown and "1 min 01 s" in shown
    assert shown.index("fedprox-") < shown.index("taco-") < shown.index("fedavg-")
    assert [line.count("-digits-") for line in _table(view, 1)] == [0, 1, 0]


def _table(view: LiveTable, rows: int) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=100).print(view._table(rows))
    return screen.getvalue().splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["suite", "none.toml"], "no suite file 'none.toml'"),
        (["suite", "mine.toml", "--only", "algo=x"], "picks no run"),
        (["suite", "mine.toml", "--only", "fedavg"], "write LABEL=VALUE; labels: seed, algo"),
        (["suite", "mine.toml", "--results-dir", "mine.toml"], "results-dir"),
        (["suite", "mine.toml", "--data-root", "away"], "invalid value 'away' for --data-root"),
    ],
)
def test_a_mistake_ends_at_once(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    write("mine", ["fedavg"])
    assert main(words) == 2
    assert expected in capsys.readouterr().err
    assert not Path("runs").exists()
