"""Settings say what is wrong, with which value, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fedsuite.core.settings import UserError, build, defaults, setting, suggest


@dataclass(frozen=True)
class Sample:
    """One setting of each kind."""

    count: int = setting(3, "a count", low=1, high=9)
    rate_of: float = setting(0.5, "a rate", above=0, alias="speed")
    kind: str = setting("red", "a kind", choices=("red", "green"))
    on: bool = setting(False, "a switch")


def test_defaults_are_spelt_as_users_do() -> None:
    assert defaults(Sample) == {"count": 3, "rate-of": 0.5, "kind": "red", "on": False}


def test_values_from_a_command_line_are_converted() -> None:
    sample = build(Sample, {"count": "4", "rate-of": "1e-3", "kind": "green", "on": "true"})
    assert sample == Sample(4, 0.001, "green", True)


def test_typed_values_are_taken_as_they_are() -> None:
    assert build(Sample, {"count": 4, "rate-of": 1, "on": True}) == Sample(4, 1.0, "red", True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuont": 3}, ["Unknown key 'x.cuont'", "Did you mean 'x.count'?", "x.rate-of"]),
        ({"count": 0}, ["invalid value '0' for x.count", "at least 1", "at most 9"]),
        ({"count": 10}, ["invalid value '10' for x.count", "at most 9"]),
        ({"count": "2.5"}, ["invalid value '2.5' for x.count", "a whole number"]),
        ({"count": "many"}, ["invalid value 'many' for x.count", "a whole number"]),
        ({"count": True}, ["invalid value 'True' for x.count", "a whole number"]),
        ({"rate-of": 0}, ["invalid value '0' for x.rate-of", "more than 0"]),
        ({"rate-of": "nan"}, ["invalid value 'nan' for x.rate-of"]),
        ({"rate-of": "inf"}, ["invalid value 'inf' for x.rate-of"]),
        (
            {"kind": "gren"},
            ["invalid value 'gren' for x.kind", "Did you mean 'green'?", "green, red"],
        ),
        ({"on": "maybe"}, ["invalid value 'maybe' for x.on", "true or false"]),
    ],
)
def test_a_wrong_value_names_key_value_and_remedy(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        build(Sample, values, "x.")
    for word in words:
        assert word in str(caught.value)


def test_an_alias_is_another_key_of_the_same_setting() -> None:
    assert build(Sample, {"speed": "0.25"}) == Sample(rate_of=0.25)
    assert build(Sample, {"speed": "0.25", "rate-of": 0.25}) == Sample(rate_of=0.25)
    assert "speed" not in defaults(Sample)


@pytest.mark.parametrize("keys", [("rate-of", "speed"), ("speed", "rate-of")])
def test_two_names_of_one_setting_with_two_values_are_refused(keys: tuple[str, str]) -> None:
    with pytest.raises(UserError) as caught:
        build(Sample, dict(zip(keys, (0.5, 0.25), strict=True)), "x.")
    assert str(caught.value) == (
        f"x.{keys[0]} and x.{keys[1]} are two names of one setting, given as 0.5 and 0.25. "
        "Give one of them."
    )


def test_a_wrong_value_is_named_by_the_key_that_was_written() -> None:
    with pytest.raises(UserError, match="invalid value '0' for x.speed"):
        build(Sample, {"speed": 0}, "x.")


def test_a_far_off_name_gets_choices_but_no_guess() -> None:
    assert suggest("zzz", ["b", "a"]) == "Choices: a, b."
