"""Settings that have an effect only with others, and which of those given have none.

A setting declares what it needs: ``needs="optimizer=sgd"``, ``needs="freeloaders"`` (any value but
none, 0 and false) or ``needs="correction=true or aggregation=true"``; of several, all must hold.
Keys are those of the same group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from fedsuite.core.settings import UserError, kebab, shown, spell

T = TypeVar("T")
Idle = Literal["refuse", "reset", "accept"]
NONE = ("", "0", "0.0", "false")


def idle_settings(settings: Any, prefix: str = "") -> dict[str, str]:
    """Return the settings that differ from their default and have no effect, with a sentence each.

    They go by the names of their fields; ``prefix`` is what users write before each key.
    """
    fields = dataclasses.fields(settings)
    values = {kebab(f.name): spell(getattr(settings, f.name)) for f in fields}
    found = {}
    for field in fields:
        if getattr(settings, field.name) == field.default:
            continue
        for need in field.metadata.get("needs", ()):
            if not holds(need, values):
                found[field.name] = _sentence(field, need, values, prefix)
                break
    return found


def settle(settings: T, idle: Idle, prefix: str = "") -> T:
    """Refuse the settings that have no effect, reset them to their defaults, or accept them.

    They are reset one at a time: of two that switch off the same thing, the other has an effect.
    """
    while idle != "accept" and (found := idle_settings(settings, prefix)):
        name, sentence = next(iter(found.items()))
        if idle == "refuse":
            raise UserError(sentence)
        settings = _reset(settings, [name])
    return settings


def settle_unused(settings: T, names: Sequence[str], idle: Idle, cause: str) -> T:
    """Do the same with settings that are not used at all; ``cause`` says where ("on local")."""
    usual = _defaults(settings)
    for name in names if idle == "refuse" else ():
        if (value := getattr(settings, name)) != usual[name]:
            raise UserError(remedy(kebab(name), value, usual[name], cause, "run another algorithm"))
    return _reset(settings, names) if idle == "reset" else settings


def holds(need: str, values: Mapping[str, str]) -> bool:
    """Return whether one of a need's alternatives holds, given all values as users spell them."""
    return any(_is_met(condition, values) for condition in need.split(" or "))


def remedy(key: str, value: object, default: object, cause: str, instead: str) -> str:
    """Return the sentence for a setting that has no effect."""
    return (
        f"{key}={shown(spell(value))} has no effect {cause}: remove it (the default is "
        f"{spell(default) or 'none'}), or {instead}."
    )


def _defaults(settings: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(settings)}


def _reset(settings: T, names: Sequence[str]) -> T:
    usual = _defaults(settings)
    return dataclasses.replace(settings, **{name: usual[name] for name in names})  # type: ignore[type-var]


def _is_met(condition: str, values: Mapping[str, str]) -> bool:
    key, equals, wanted = condition.partition("=")
    return values[key] == wanted if equals else values[key] not in NONE


def _sentence(
    field: dataclasses.Field[Any], need: str, values: Mapping[str, str], prefix: str
) -> str:
    conditions = [condition.partition("=") for condition in need.split(" or ")]
    now = [
        f"with {prefix}{key}={shown(values[key])}" if values[key] else f"without {prefix}{key}"
        for key in dict.fromkeys(key for key, _, _ in conditions)
    ]
    wanted = [_advice(f"{prefix}{key}", value, values[key]) for key, _, value in conditions]
    key = kebab(field.name)
    return remedy(
        f"{prefix}{key}", values[key], field.default, " and ".join(now), " or ".join(wanted)
    )


def _advice(key: str, wanted: str, now: str) -> str:
    if wanted:
        return f"set {key}={wanted}"
    return f"choose another {key}" if now else f"set {key}"
