"""Who freeloads."""

from __future__ import annotations

import pytest

from fedsuite.core.client_ids import parse_freeloaders
from fedsuite.core.settings import UserError


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
