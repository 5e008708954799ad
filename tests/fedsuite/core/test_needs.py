"""A setting that others deprive of its effect is refused, reset or accepted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fedsuite.core.needs import Idle, idle_settings, settle, settle_unused
from fedsuite.core.settings import UserError, setting


@dataclass(frozen=True)
class Oven:
    """Settings with one need of each form."""

    fuel: str = setting("gas", "what it burns", choices=("gas", "wood", "none"))
    flame: int = setting(3, "size of the flame", needs="fuel=gas")
    logs: int = setting(0, "logs", needs="fuel=wood")
    log_size: float = setting(1.0, "their size", needs=("fuel=wood", "logs"))
    glow: bool = setting(True, "it glows", needs="fuel=gas or fuel=wood")
    timer: float = setting(9.0, "minutes", needs="bell")
    bell: bool = setting(True, "it rings", needs="timer")
    note: str = setting("", "a note")
    reader: str = setting("", "who reads it", needs="note")
    light: int = setting(1, "its lamp", needs="glow=false or bell=true")
    fan: int = setting(0, "its fan", needs="fuel=wood")
    spin: int = setting(1, "of the fan", needs="fan")


def refusal(oven: Oven, prefix: str = "") -> str:
    with pytest.raises(UserError) as caught:
        settle(oven, "refuse", prefix)
    return str(caught.value)


@pytest.mark.parametrize(
    "oven",
    [
        Oven(),
        Oven(fuel="none"),
        Oven(fuel="wood", logs=2, log_size=0.5, glow=False),
        Oven(flame=5, timer=0.0),
        Oven(note="0.5", reader="me"),
    ],
)
def test_settings_with_an_effect_are_accepted(oven: Oven) -> None:
    assert idle_settings(oven) == {}
    assert settle(oven, "refuse") == settle(oven, "reset") == oven


def test_a_value_equal_to_the_default_is_always_fine() -> None:
    assert settle(Oven(fuel="wood", flame=3, log_size=1.0), "refuse").flame == 3


def test_the_sentence_says_why_and_what_to_do() -> None:
    assert refusal(Oven(fuel="wood", flame=5), "oven.") == (
        "oven.flame=5 has no effect with oven.fuel=wood: remove it (the default is 3), or set "
        "oven.fuel=gas."
    )
    assert refusal(Oven(fuel="none", glow=False)) == (
        "glow=false has no effect with fuel=none: remove it (the default is true), or set "
        "fuel to gas or wood."
    )
    assert refusal(Oven(fuel="wood", log_size=2.0)) == (
        "log-size=2.0 has no effect with logs=0: remove it (the default is 1.0), or set logs to "
        "another value."
    )
    assert refusal(Oven(fuel="none", bell=False, light=5), "o.") == (
        "o.light=5 has no effect with o.glow=true and o.bell=false: remove it (the default is 1), "
        "or set o.glow=false or o.bell=true."
    )
    assert refusal(Oven(reader="me")) == (
        "reader=me has no effect without note: remove it (the default is none), or set note."
    )


def test_the_sentence_quotes_what_was_written() -> None:
    written = {"fuel": "wood", "logs": "0_0", "log-size": "2"}
    with pytest.raises(UserError, match="^log-size=2 has no effect with logs=0_0: remove it"):
        settle(Oven(fuel="wood", log_size=2.0), "refuse", written=written)


def test_given_keys_are_refused_and_others_reset() -> None:
    oven = Oven(fuel="wood", flame=5, log_size=2.0)
    assert settle(oven, frozenset({"fuel"})) == Oven(fuel="wood")
    with pytest.raises(UserError, match="^o.flame=5 has no effect with o.fuel=wood"):
        settle(oven, frozenset({"o.flame"}), "o.")
    unused = settle_unused(oven, ("flame",), frozenset({"fuel"}), "on a stove")
    assert unused == Oven(fuel="wood", log_size=2.0)
    with pytest.raises(UserError, match="^flame=05 has no effect on a stove"):
        settle_unused(oven, ("flame",), frozenset({"flame"}), "on a stove", {"flame": "05"})


def test_what_was_reset_is_not_quoted_any_more() -> None:
    """A file's fan=2 has no effect with gas; then spin has none, with the default fan=0."""
    with pytest.raises(UserError, match="^spin=5 has no effect with fan=0: "):
        settle(Oven(fan=2, spin=5), frozenset({"spin"}), written={"fan": 2, "spin": 5})


def test_all_needs_must_hold() -> None:
    assert "log-size=2.0 has no effect with fuel=gas" in refusal(Oven(log_size=2.0))


def test_shared_settings_are_reset_and_recorded_ones_accepted() -> None:
    oven = Oven(fuel="wood", flame=5, logs=1)
    assert settle(oven, "reset") == Oven(fuel="wood", logs=1)
    assert settle(oven, "accept") == oven


@pytest.mark.parametrize("idle", ["refuse", "reset", "accept"])
def test_what_is_off_may_be_switched_off_twice(idle: Idle) -> None:
    """Neither timer=0 nor bell=false has an effect beside the other; both reset would ring."""
    silent = Oven(timer=0.0, bell=False)
    assert settle(silent, idle) == silent
    assert settle(Oven(fuel="none", logs=0), idle) == Oven(fuel="none")


def test_zero_is_no_switch_where_nothing_needs_the_setting() -> None:
    assert "flame=0 has no effect with fuel=wood" in refusal(Oven(fuel="wood", flame=0))


@pytest.mark.parametrize(("idle", "flame"), [("reset", 3), ("accept", 5)])
def test_unused_settings_likewise(idle: Idle, flame: int) -> None:
    assert settle_unused(Oven(flame=5), ("flame", "logs"), idle, "on a stove").flame == flame


def test_unused_settings_are_refused_by_name() -> None:
    with pytest.raises(UserError) as caught:
        settle_unused(Oven(flame=5), ("logs", "flame"), "refuse", "on a stove")
    assert str(caught.value) == (
        "flame=5 has no effect on a stove: remove it (the default is 3), or run another algorithm."
    )
    assert settle_unused(Oven(), ("flame",), "refuse", "on a stove") == Oven()
