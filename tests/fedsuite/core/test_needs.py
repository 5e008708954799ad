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
        "fuel=gas or set fuel=wood."
    )
    assert refusal(Oven(fuel="wood", log_size=2.0)) == (
        "log-size=2.0 has no effect with logs=0: remove it (the default is 1.0), or choose another "
        "logs."
    )
    assert refusal(Oven(reader="me")) == (
        "reader=me has no effect without note: remove it (the default is none), or set note."
    )


def test_all_needs_must_hold() -> None:
    assert "log-size=2.0 has no effect with fuel=gas" in refusal(Oven(log_size=2.0))


def test_shared_settings_are_reset_and_recorded_ones_accepted() -> None:
    oven = Oven(fuel="wood", flame=5, logs=1)
    assert settle(oven, "reset") == Oven(fuel="wood", logs=1)
    assert settle(oven, "accept") == oven


def test_of_two_switches_of_one_thing_only_one_is_reset() -> None:
    """Neither timer=0 nor bell=false has an effect beside the other; both reset would ring."""
    assert settle(Oven(timer=0.0, bell=False), "reset") == Oven(bell=False)


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
