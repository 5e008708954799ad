"""Several values of a setting, and values that have commas."""

from __future__ import annotations

import pytest

from fedsuite.core.settings import UserError
from fedsuite.core.value_lists import split_values, write_pair


@pytest.mark.parametrize(
    ("key", "text", "values"),
    [
        ("lr", "0.1", ["0.1"]),
        ("lr", "0.01,0.1", ["0.01", "0.1"]),
        ("lr", "0.01, 0.1", ["0.01", "0.1"]),
        ("label-column", '"a"', ['"a"']),  # without a comma, as it is
        ("label-column", '"a,b"', ["a,b"]),
        ("label-column", '"a,b","c",d', ["a,b", "c", "d"]),
        ("label-column", '"say ""a,b"""', ['say "a,b"']),
        ("label-column", '"",a', ["", "a"]),
        ("freeloaders", "3,7,", ["3,7,"]),
        ("attackers", "3,7,", ["3,7,"]),
        ("freeloaders", '"3,7,"', ["3,7,"]),
        ("freeloaders", '"4","8"', ["4", "8"]),
        ("input-columns", "age,pulse", ["age,pulse"]),
        ("tracking", "mlflow,wandb", ["mlflow,wandb"]),
        ("algo-settings", '{"a": 1, "b": 2}', ['{"a": 1, "b": 2}']),
        ("data-root", "/my,data", ["/my,data"]),
    ],
)
def test_a_comma_separates_values_unless_it_is_quoted(
    key: str, text: str, values: list[str]
) -> None:
    assert split_values(key, text) == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,", "a value between commas is missing"),
        (",1", "a value between commas is missing"),
        ("1,,2", "a value between commas is missing"),
        ('"1,2', "a value in quotes ends with a quote"),
        ('"1"x,2', "a value in quotes ends with a quote"),
    ],
)
def test_what_is_no_list_is_refused(text: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        split_values("seed", text)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("lr", 0.1, "lr=0.1"),
        ("resume", True, "resume=true"),
        ("lr", [0.01, 0.1], "lr=0.01,0.1"),
        ("dataset", "a,b.csv", 'dataset="a,b.csv"'),
        ("freeloaders", "3,7,", "freeloaders=3,7,"),
        ("freeloaders", ["4", "3,7,"], 'freeloaders="4","3,7,"'),
        ("label-column", ['"', ""], 'label-column="""",""'),
        ("algo-settings", '{"a": 1, "b": 2}', 'algo-settings={"a": 1, "b": 2}'),
    ],
)
def test_what_is_written_is_read_again(key: str, value: object, word: str) -> None:
    assert write_pair(key, value) == word
    given = [str(one) for one in value] if isinstance(value, list) else [str(value)]
    read = split_values(key, word.partition("=")[2])
    assert read == given or value is True
