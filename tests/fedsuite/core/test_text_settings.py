"""Who freeloads, and names of runs."""

from __future__ import annotations

import pytest

from fedsuite.core.settings import UserError
from fedsuite.core.text_settings import check_run_name, parse_freeloaders


def test_freeloaders_by_count_and_by_name() -> None:
    assert parse_freeloaders("", 5) == parse_freeloaders("0", 5) == ()
    assert parse_freeloaders("2", 5) == (3, 4)
    assert parse_freeloaders("1,3", 5) == parse_freeloaders(" 3, 1,3 ", 5) == (1, 3)
    assert parse_freeloaders("2,", 5) == (2,)
    assert parse_freeloaders("0004", 5) == (1, 2, 3, 4)


@pytest.mark.parametrize("text", ["-3", "1_0", "x", "1.5", "٣", "²", ",", " ", "-1,2", "1,-2"])
def test_what_is_no_count_and_no_list_of_ids_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="for freeloaders: it takes a count such as 8, or client"):
        parse_freeloaders(text, 5)


@pytest.mark.parametrize(
    "text", ["5", "1000000000", str(10**22), "9" * 9000, "5,", f"1,{10**22}", "0,1,2,3,4"]
)
def test_too_many_freeloaders_are_refused_at_once(text: str) -> None:
    with pytest.raises(UserError, match="ids are 0 to 4, and at least one client must train"):
        parse_freeloaders(text, 5)


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
