"""Names of runs are names of folders."""

from __future__ import annotations

import pytest

from fedsuite.core.run_names import check_run_name
from fedsuite.core.settings import UserError


@pytest.mark.parametrize("name", ["near", "a b", "Zoë", "a.b-c_d", "x" * 255, "é" * 127, ""])
def test_a_name_of_a_folder_is_a_name_of_a_run(name: str) -> None:
    check_run_name(name)


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".a", "-a", " a", "a ", "a\nb", "a\tb", "a\0b", "a\x7f", "a\u2028b"]
)
def test_a_name_that_misleads_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="for run-name: it names a folder inside results-dir"):
        check_run_name(name)


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
def test_a_name_has_as_many_bytes_as_a_folders_can(name: str) -> None:
    with pytest.raises(UserError, match="it has 256 bytes, and a folder's name at most 255"):
        check_run_name(name)
