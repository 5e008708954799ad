"""Settings say what is wrong, with which value, and what to do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from fedsuite.core.settings import (
    UserError,
    allowed,
    build,
    defaults,
    kebab,
    setting,
    shown,
    spell,
    suggest,
)


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


@dataclass(frozen=True)
class Free:
    """Settings without bounds."""

    number: float = setting(0.0, "any number")
    part: float = setting(0.5, "a part", low=0, high=1)
    whole: int = setting(1, "any whole number")
    text: str = setting("", "any text")


def test_bounds_are_inclusive_but_above() -> None:
    assert build(Sample, {"count": 1}).count == 1 and build(Sample, {"count": 9}).count == 9
    assert build(Free, {"part": 0}).part == 0.0 and build(Free, {"part": "1"}).part == 1.0
    assert build(Sample, {"rate-of": 1e-30}).rate_of == 1e-30


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_number_without_bounds_is_finite(value: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Free, {"number": value})
    assert str(caught.value) == f"invalid value '{value}' for number: it must be finite."
    assert build(Free, {"number": -1e9}).number == -1e9


def test_the_sentence_names_both_bounds() -> None:
    with pytest.raises(UserError) as caught:
        build(Free, {"part": 2})
    assert str(caught.value) == "invalid value '2' for part: it must be at least 0 and at most 1."


def test_whole_numbers_lose_nothing() -> None:
    """2^60 + 1 is not a float: through one it would lose its last digit."""
    large = 2**60 + 1
    assert build(Free, {"whole": large}).whole == large
    assert build(Free, {"whole": str(large)}).whole == large
    converted = build(Free, {"whole": 4.0}).whole
    assert converted == 4 and isinstance(converted, int)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"number": True}, "a number"),
        ({"number": None}, "a number"),
        ({"whole": "inf"}, "a whole number"),
        ({"whole": 2.5}, "a whole number"),
        ({"whole": "4.0"}, "a whole number"),
    ],
)
def test_what_is_no_number_is_refused(values: dict[str, Any], wanted: str) -> None:
    with pytest.raises(UserError, match=f"it takes {wanted}\\.$"):
        build(Free, values)


def test_text_is_spelt_as_the_user_does_and_switches_in_any_case() -> None:
    assert build(Free, {"text": True}).text == "true" and build(Free, {"text": 3}).text == "3"
    assert build(Sample, {"on": "TRUE"}).on is True and build(Sample, {"on": "False"}).on is False
    assert (spell(False), spell(1), spell("Yes")) == ("false", "1", "Yes")


def test_allowed_values_in_a_few_words() -> None:
    said = [allowed(field) for field in dataclasses.fields(Sample)]
    assert said == ["integer >= 1, <= 9", "number > 0", "red, green", "true, false"]
    assert [allowed(field) for field in dataclasses.fields(Free)] == [
        "number", "number >= 0, <= 1", "integer", "text",
    ]  # fmt: skip


def test_names_are_spelt_with_dashes() -> None:
    assert (kebab("num_clients"), kebab("lambda_"), kebab("lr")) == ("num-clients", "lambda", "lr")


def test_a_guess_is_one_name_and_near_enough() -> None:
    """SequenceMatcher: "abcd" and "abxx" share 2 of 4 letters on both sides, 2*2/8 = 0.5."""
    assert suggest("abcd", ["abxx"]) == "Did you mean 'abxx'? Choices: abxx."
    assert suggest("abcd", ["axxx"]) == "Choices: axxx."
    assert suggest("near", ["neat", "nearby"], "x.") == (
        "Did you mean 'x.nearby'? Choices: x.nearby, x.neat."
    )


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        build(Free, values)
    return str(caught.value)


def test_whole_numbers_fit_into_flowers_run_config() -> None:
    """TOML's integers have 64 bits: up to 2^63 - 1 = 9223372036854775807."""
    largest = 9223372036854775807
    assert build(Free, {"whole": largest}).whole == largest
    assert build(Free, {"whole": str(-largest)}).whole == -largest
    for value in (largest + 1, str(10**22), -largest - 1, 1e300):
        assert f"it must be at most {largest} in size." in refusal({"whole": value})
    assert "it takes a whole number." in refusal({"whole": "9" * 5000})


def test_numbers_are_those_that_a_float32_can_be() -> None:
    """float32 goes from 2^-126 = 1.18e-38 to (2 - 2^-23) 2^127 = 3.40e38."""
    assert build(Free, {"number": 3.4e38}).number == 3.4e38
    assert build(Free, {"number": -1.2e-38}).number == -1.2e-38
    for value in (1e308, "5e-324", -1e39, 1e-39):
        assert "it must be 1.2e-38 to 3.4e+38 in size." in refusal({"number": value})


def test_a_negative_zero_is_zero() -> None:
    assert str(build(Free, {"number": "-0.0"}).number) == "0.0"


def test_numbers_are_written_as_in_toml() -> None:
    """Underscores between digits, and ASCII alone: TOML files and command lines read the same."""
    assert build(Free, {"whole": "1_000", "number": "1_0.5"}) == Free(number=10.5, whole=1000)
    for wrong in ("١٢", "１２", "1__0", "_1"):
        assert "it takes a whole number." in refusal({"whole": wrong})
        assert "it takes a number." in refusal({"number": wrong})


@pytest.mark.parametrize("value", [[1], {"a": 1}, None])
def test_only_single_values_are_text(value: object) -> None:
    assert refusal({"text": value}).endswith("for text: it takes text.")


def test_text_is_short_and_printable() -> None:
    ids = ",".join(map(str, range(5000)))
    assert build(Free, {"text": ids}).text == ids
    assert build(Free, {"text": "Zoë's {\n} rows"}).text == "Zoë's {\n} rows"
    assert "it has 1000001 characters, and at most 1000000" in refusal({"text": "x" * 1_000_001})
    assert "the character '\\x00' cannot be part of it" in refusal({"text": "a\0b"})
    assert "the character '\\udcff' cannot be part of it" in refusal({"text": "a\udcff"})


@pytest.mark.parametrize("key", ["whole", "text", "x" * 1_000_000])
def test_a_sentence_quotes_no_more_than_the_ends(key: str) -> None:
    assert len(refusal({key: "y" * 1_000_001})) < 500


def test_of_a_long_path_the_files_name_is_quoted() -> None:
    path = "/" + "folder/" * 100 + "rows.csv"
    assert shown(path).startswith("/folder/") and shown(path).endswith("/rows.csv")
    assert len(shown(path)) == 303 and "..." in shown(path)
    assert shown(path[-300:]) == path[-300:]
