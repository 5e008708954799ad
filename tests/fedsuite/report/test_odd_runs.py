"""A report is made of runs that are damaged, half there or oddly named, and says what they are."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.records.collection import open_collection
from fedsuite.records.reader import read_run
from fedsuite.report.build import make_report
from fedsuite.report.diagnostic_figures import group
from fedsuite.report.document import Bold, ReportTable
from fedsuite.report.results import results_table


def test_a_run_refused_before_its_settings_says_why(tmp_path: Path) -> None:
    said = {
        "refused": "fedavg on digits\nfedsuite: data-root = 'x' is not a directory.\n",
        "crashed": "Traceback (most recent call last):\n  a line\nOSError: disk full\n",
        "starting": "fedavg on digits: mlp, 2 clients\n",
    }
    for name, text in said.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "console.log").write_text(text)
    runs = {run.name: (run.state, run.note) for run in open_collection(str(tmp_path)).runs}
    assert runs == {
        "refused": ("failed", "data-root = 'x' is not a directory."),
        "crashed": ("failed", "OSError: disk full"),
        "starting": ("not started", "it has not written its settings yet"),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_files_that_lack_something_do_not_stop_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", "poor", "taco", [0.1, 0.5], expelled=[3])
    (folder / "summary.json").write_text('{"status": "finished", "expelled": [3]}')
    lines = (folder / "clients.jsonl").read_text()
    (folder / "clients.jsonl").write_text('{"round": 1, "phase": "train"}\n' + lines)
    make_report(str(folder), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "1 run: 1 finished." in text
    assert "No finished run has recorded its communication yet." in text


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_report_beside_the_runs_is_not_a_run(tmp_path: Path) -> None:
    write_run(tmp_path, "good", "fedavg", [0.1, 0.5])
    for _ in range(2):
        make_report(str(tmp_path), tmp_path / "report")
    assert "1 run: 1 finished." in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_names_are_not_taken_for_html(suite: Path, tmp_path: Path) -> None:
    shutil.copytree(suite, tmp_path / "suite")
    path = tmp_path / "suite" / "suite.json"
    path.write_text(path.read_text().replace("A demonstration", "<script>alert(1)</script>"))
    make_report(str(tmp_path / "suite"), tmp_path / "out")
    for name in ("index.html", "report.md"):
        text = (tmp_path / "out" / name).read_text()
        assert "<script" not in text and "&lt;script" in text


def test_what_is_not_a_number_is_never_the_best(suite: Path) -> None:
    collection = open_collection(str(suite))
    runs = [
        dataclasses.replace(run, summary={**run.summary, "final_accuracy": float("nan")})
        if run.name.startswith("fedavg")
        else run
        for run in collection.runs
    ]
    table = results_table(dataclasses.replace(collection, runs=runs), "final_accuracy", "higher")
    assert isinstance(table, ReportTable) and not table.left_aligned[1]
    assert [row[0] for row in table.rows if isinstance(row[1], Bold)] == ["fedadw"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_part_of_a_suite_says_that_it_is_one(suite: Path, tmp_path: Path) -> None:
    shutil.copytree(suite, tmp_path / "suite")
    path = tmp_path / "suite" / "suite.json"
    manifest = json.loads(path.read_text()) | {"planned": 40}
    path.write_text(json.dumps(manifest))
    make_report(str(tmp_path / "suite"), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "This report has 12 of the 40 runs of this command, as selected by --only." in text


def test_a_file_is_no_place_for_a_report(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["report", str(suite), "-o", str(tmp_path / "notes.txt")]) == 2
    assert "is a file. Give a folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["notes.txt/report", "taken"])
@pytest.mark.usefixtures("no_pictures")
def test_a_place_that_cannot_be_written_is_the_options_fault(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "figures").write_text("not a folder")
    assert main(["report", str(suite / "fedavg-s1"), "-o", str(tmp_path / place)]) == 2
    said = capsys.readouterr().err
    assert f"invalid value '{tmp_path / place}' for -o" in said
    assert "results-dir" not in said


def test_clients_are_grouped_by_what_they_are_up_to(tmp_path: Path) -> None:
    bad: dict[str, Any] = {"freeloaders": "1", "attack": "scaled", "attackers": "0,"}
    run = read_run(write_run(tmp_path, "bad", "taco", [0.1, 0.5], **bad))
    assert [group(run, client) for client in range(4)] == [
        *("attackers", "honest", "honest", "freeloaders")
    ]
    plain = read_run(write_run(tmp_path, "plain", "taco", [0.1, 0.5]))
    assert group(plain, 3) == "all clients"
