"""Files by their path, and those that come with fedsuite by their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsuite.core.installation import CONFIGS, SUITES, find_file, shipped_files
from fedsuite.core.settings import UserError


def test_a_name_is_a_shipped_file_unless_there_is_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_file("taco_adult", CONFIGS, "file") == CONFIGS / "taco_adult.toml"
    Path("demo").mkdir()  # a folder is none
    assert find_file("demo", SUITES, "suite") == SUITES / "demo.toml"
    Path("taco_adult").write_text("")
    assert find_file("taco_adult", CONFIGS, "file") == Path("taco_adult")


@pytest.mark.parametrize("path", ["mine.toml", "my/own", "/taco_adult"])
def test_a_path_is_left_to_whoever_reads_it(path: str) -> None:
    assert find_file(path, CONFIGS, "file") == Path(path)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no suite 'dmo'. Did you mean 'demo'.*taco_table5"):
        find_file("dmo", SUITES, "suite")
    assert set(shipped_files(CONFIGS)) & {"taco_adult", "demo"} == {"taco_adult"}
