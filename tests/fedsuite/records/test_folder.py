"""One folder, one vocabulary of states."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from run_folders import write_run

from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder, RunState, SuiteFolder, make_folder

ROOT = Path(__file__).parents[3] / "fedsuite"
NAMES = "config.json summary.json history.jsonl clients.jsonl model.safetensors run.log console.log"


def test_statuses_written_by_earlier_versions_are_states() -> None:
    written = ("finished", "target reached", "failed", "interrupted")
    assert [RunState(status).done for status in written] == [True, True, False, False]
    assert str(RunState.TARGET_REACHED) == f"{RunState.TARGET_REACHED}" == "target reached"


def test_a_folder_says_how_its_run_stands(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "none").state is RunState.NOT_STARTED
    good = RunFolder(write_run(tmp_path, "good", "fedavg", [0.1, 0.5]))
    assert good.state.done and good.exists and not good.reason and not good.is_being_written
    bad = RunFolder(write_run(tmp_path, "bad", "fedavg", [0.1, 0.5], status="failed"))
    assert bad.state is RunState.FAILED and "no room left" in bad.reason
    good.summary_file.write_text("{")
    assert good.state is RunState.BROKEN and not good.reason
    good.summary_file.unlink()
    assert good.state is RunState.NOT_FINISHED
    assert good.read_provenance()["engine"] == "inline" and good.read_config().algo == "fedavg"


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"invalid value '.*file' for results-dir: Not a directory"):
        make_folder(tmp_path / "file" / "run")


def test_only_its_owner_may_enter_a_run_unless_told_otherwise(tmp_path: Path) -> None:
    files = RunFolder(tmp_path / "runs" / "run")
    files.make()
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(files.path.parent.stat().st_mode) & 0o500 == 0o500
    files.path.chmod(0o755)
    files.make()
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o755


def test_suites_beside_a_suite_are_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        SuiteFolder(tmp_path / name).manifest_file.write_text("{}")
    (tmp_path / "run").mkdir()
    assert SuiteFolder(tmp_path / "one").others() == [SuiteFolder(tmp_path / "two")]


@pytest.mark.parametrize("name", [*NAMES.split(), "suite.json", "schema.json"])
def test_a_file_name_is_spelled_in_one_place(name: str) -> None:
    """Docstrings, help texts and messages may name a file; a path is built by its folder alone."""
    spelled = re.compile(rf'"(\*/)?{re.escape(name)}"')
    found = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py") if spelled.search(p.read_text())]
    assert found == ["records/folder.py"]
