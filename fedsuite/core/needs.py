"""Settings that have an effect only with others, and which of those given have none.

A setting declares what it needs: ``needs="optimizer=sgd"``, ``needs="freeloaders"`` (any value but
none, 0 and false) or ``needs="correction=true or aggregation=true"``; of several, all must hold.
Keys are those of the same group. A value may be a pattern: ``needs="dataset=*.csv"``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from fedsuite.core.settings import UserError, kebab, shown, spell

T = TypeVar("T")
# What to do with settings without effect: one thing with all, or refuse these keys, reset others.
Idle = Literal["refuse", "reset", "accept"] | frozenset[str]
NONE = ("", "0", "0.0", "false")
OFF = (*NONE, "none")


def idle_settings(
    settings: Any, prefix: str = "", written: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the settings that differ from their default and have no effect, with a sentence each.

    They go by the names of their fields; ``prefix`` is what users write before each key, and
    ``written`` the values as they wrote them. Switching off what is off already is fine.
    """
    fields = dataclasses.fields(settings)
    values = {kebab(f.name): spell(getattr(settings, f.name)) for f in fields}
    quoted = values | {key: spell(value) for key, value in (written or {}).items()}
    needs = [_wanted(need) for field in fields for need in _needs(field)]
    found = {}
    for field in fields:
        key = kebab(field.name)
        if getattr(settings, field.name) == field.default or _is_off(key, values[key], needs):
            continue
        unmet = next((need for need in _needs(field) if not holds(need, values)), None)
        if unmet is not None:
            found[field.name] = _sentence(field, unmet, quoted, prefix)
    return found


def settle(
    settings: T, idle: Idle, prefix: str = "", written: Mapping[str, Any] | None = None
) -> T:
    """Refuse the settings that have no effect, reset them to their defaults, or accept them.

    They are reset one at a time, since then another may have an effect.
    """
    written = dict(written or {})
    while idle != "accept" and (found := idle_settings(settings, prefix, written)):
        name = next((n for n in found if not _is_refused(prefix + kebab(n), idle)), None)
        if name is None:
            raise UserError(next(iter(found.values())))
        settings = _reset(settings, [name])
        written.pop(kebab(name), None)
    return settings


def settle_unused(
    settings: T,
    names: Sequence[str],
    idle: Idle,
    cause: str,
    written: Mapping[str, Any] | None = None,
) -> T:
    """Do the same with settings that are not used at all; ``cause`` says where ("on local")."""
    if idle == "accept":
        return settings
    usual = _defaults(settings)
    for name in names:
        key, value = kebab(name), getattr(settings, name)
        if value != usual[name] and _is_refused(key, idle):
            quoted = (written or {}).get(key, value)
            raise UserError(remedy(key, quoted, usual[name], cause, "run another algorithm"))
    return _reset(settings, names)


def holds(need: str, values: Mapping[str, str]) -> bool:
    """Return whether one of a need's alternatives holds, given all values as users spell them."""
    return any(_is_met(values[key], wanted) for key, wanted in _wanted(need).items())


def remedy(key: str, value: object, default: object, cause: str, instead: str) -> str:
    """Return the sentence for a setting that has no effect."""
    return (
        f"{key}={shown(spell(value))} has no effect {cause}: remove it (the default is "
        f"{spell(default) or 'none'}), or {instead}."
    )


def _needs(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    needs: tuple[str, ...] = field.metadata.get("needs", ())
    return needs


def _wanted(need: str) -> dict[str, list[str]]:
    """Return a need's keys, and which of their values meet it; an empty list is any but none."""
    wanted: dict[str, list[str]] = {}
    for condition in need.split(" or "):
        key, equals, value = condition.partition("=")
        wanted.setdefault(key, []).extend([value] if equals else [])
    return wanted


def _is_met(value: str, wanted: Sequence[str]) -> bool:
    if not wanted:
        return value not in NONE
    return any(fnmatchcase(value, pattern) for pattern in wanted)


def _is_off(key: str, value: str, needs: Sequence[Mapping[str, Sequence[str]]]) -> bool:
    """Return whether a value switches off what needs its setting."""
    return value in OFF and any(key in need and not _is_met(value, need[key]) for need in needs)


def _is_refused(key: str, idle: Idle) -> bool:
    return key in idle if isinstance(idle, frozenset) else idle == "refuse"


def _defaults(settings: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(settings)}


def _reset(settings: T, names: Sequence[str]) -> T:
    usual = _defaults(settings)
    return dataclasses.replace(settings, **{name: usual[name] for name in names})  # type: ignore[type-var]


def _sentence(
    field: dataclasses.Field[Any], need: str, values: Mapping[str, str], prefix: str
) -> str:
    wanted = _wanted(need)
    given = [f"{prefix}{key}={shown(values[key])}" for key in wanted if values[key]]
    lacking = [f"{prefix}{key}" for key in wanted if not values[key]]
    causes = {"with": " and ".join(given), "without": " and ".join(lacking)}
    cause = " and ".join(f"{word} {keys}" for word, keys in causes.items() if keys)
    advice = " or ".join(_advice(f"{prefix}{k}", v, values[k]) for k, v in wanted.items())
    key = kebab(field.name)
    return remedy(f"{prefix}{key}", values[key], field.default, cause, f"set {advice}")


def _advice(key: str, wanted: Sequence[str], now: str) -> str:
    if len(wanted) == 1:
        return f"{key}={wanted[0]}"
    if wanted:
        return f"{key} to {' or '.join(wanted)}"
    return f"{key} to another value" if now else key
