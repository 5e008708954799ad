"""A run goes by its name, by how its name alone begins, or as the latest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.core.files import write_json
from fedsuite.core.settings import UserError
from fedsuite.records.collection import open_collection
from fedsuite.records.folder import find_run


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name, hour in (("fedavg-s1", 10), ("fedavg-s10", 12), ("taco-s1", 11), ("demo/late", 13)):
        folder = write_run(tmp_path / Path(name).parent, Path(name).name, "fedavg", [0.1, 0.5])
        start(folder, f"2026-01-01T{hour}:00:00+00:00")
    return tmp_path


def start(folder: Path, moment: str) -> None:
    document = json.loads((folder / "config.json").read_text())
    document["meta"]["started"] = moment
    write_json(folder / "config.json", document)


def test_enough_of_a_name_will_do(results: Path) -> None:
    assert find_run("ta", str(results)) == results / "taco-s1"
    assert find_run("demo/l", str(results)) == results / "demo" / "late"
    assert find_run("fedavg-s10", str(results)) == results / "fedavg-s10"
    assert find_run("fedavg-s1", str(results)) == results / "fedavg-s1", "a whole name wins"


def test_a_beginning_of_several_names_the_candidates(results: Path) -> None:
    with pytest.raises(UserError, match=r"2 runs in .* begin with 'fed': fedavg-s1, fedavg-s10\."):
        find_run("fed", str(results))
    for number in range(10):
        (results / f"fedavg-x{number}").mkdir()
        (results / f"fedavg-x{number}" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"12 runs .*, fedavg-x7 and 2 more\. Write more"):
        find_run("fed", str(results))


def test_latest_is_the_run_that_began_last(results: Path) -> None:
    assert find_run("latest", str(results)) == results / "demo" / "late"
    start(results / "taco-s1", "2026-01-01T15:00:00+01:00")  # 14:00 of the others
    assert find_run("latest", str(results)) == results / "taco-s1"
    (results / "taco-s1" / "config.json").write_text("{")
    assert find_run("latest", str(results)) == results / "demo" / "late"
    write_run(results, "latest", "taco", [0.1, 0.5])
    start(results / "latest", "2020-01-01T00:00:00+00:00")
    assert find_run("latest", str(results)) == results / "latest", "a run of that name wins"


def test_without_runs_there_is_no_latest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run 'latest' in .*That folder has no runs yet"):
        find_run("latest", str(tmp_path))


def test_comparisons_and_reports_find_runs_so_too(results: Path) -> None:
    (run,) = open_collection("latest", str(results)).runs
    assert run.folder == results / "demo" / "late"
    (run,) = open_collection("tac", str(results)).runs
    assert run.folder == results / "taco-s1"
    assert len(open_collection("demo", str(results)).runs) == 1, "a folder wins"


def test_watching_takes_the_latest_but_no_beginning(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run ``fedavg`` may be yet to begin."""
    assert main(["watch", "latest", "--once", "--results-dir", str(results)]) == 0
    assert "late" in capsys.readouterr().out
    assert main(["watch", "tac", "--once", "--results-dir", str(results)]) == 1
    assert "The run 'tac' has not begun" in capsys.readouterr().err


def test_show_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((results / "taco-s1" / "summary.json").read_text())
    write_json(results / "taco-s1" / "summary.json", summary | {"final_loss": float("nan")})
    assert main(["show", "taco", "--json", "--results-dir", str(results)]) == 0
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert shown["name"] == "taco-s1" and shown["folder"] == str(results / "taco-s1")
    assert shown["state"] == "finished" and shown["round"] == 1 and shown["damage"] == ""
    assert shown["config"]["lr"] == 0.1 and shown["summary"]["final_accuracy"] == 0.5
    assert shown["summary"]["final_loss"] is None
