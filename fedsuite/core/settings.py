"""Typed settings declared once, and errors written for the person who made the mistake.

A group of settings is a frozen dataclass whose fields are made with :func:`setting`. From that
one declaration come the default, the help line and the check of a value that was typed.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")
Scalar = str | int | float | bool


class UserError(Exception):
    """A mistake in what the user asked for; the message is a sentence that says what to do."""


def invalid(key: str, value: object, reason: str) -> UserError:
    """Return the error for a value that ``key`` cannot have; ``reason`` says why, or what to do."""
    return UserError(f"invalid value '{value}' for {key}: {reason}")


def setting(
    default: Scalar,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Iterable[str] | None = None,
    alias: str = "",
) -> Any:
    """Declare a setting: its default, one line of help, and which values are allowed.

    ``low`` and ``high`` are inclusive bounds, ``above`` an exclusive lower one; ``alias`` is
    another key that users may write.
    """
    limits = {"low": low, "high": high, "above": above}
    chosen = tuple(choices) if choices is not None else None
    return dataclasses.field(
        default=default,
        metadata={"help": description, "limits": limits, "choices": chosen, "alias": alias},
    )


def kebab(name: str) -> str:
    """Spell a field name as the user does: ``num_clients`` num-clients, ``lambda_`` lambda."""
    return name.rstrip("_").replace("_", "-")


def suggest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Suggest the nearest of the known names, if any is near, and list them all.

    ``prefix`` is what users write before each of the names.
    """
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{prefix}{near[0]}'? " if near else ""
    return f"{hint}Choices: {', '.join(f'{prefix}{name}' for name in names)}."


def build(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Make a settings dataclass from kebab-case values, refusing what it does not know.

    ``prefix`` is the namespace the user sees before each key (``"taco."``).
    """
    types = get_type_hints(cls)
    fields = {kebab(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    aliases = {f.metadata["alias"]: f for f in fields.values() if f.metadata.get("alias")}
    checked: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in values.items():
        field = fields.get(key) or aliases.get(key)
        if field is None:
            raise UserError(f"Unknown key '{prefix}{key}'. {suggest(key, fields, prefix)}")
        chosen = _check(prefix + key, value, types[field.name], field)
        if checked.get(field.name, chosen) != chosen:
            raise UserError(
                f"{prefix}{written[field.name]} and {prefix}{key} are two names of one setting, "
                f"given as {checked[field.name]} and {chosen}. Give one of them."
            )
        checked[field.name], written[field.name] = chosen, key
    return cls(**checked)


def defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the kebab-case keys of a settings dataclass with their defaults."""
    return {kebab(f.name): f.default for f in dataclasses.fields(cls)}


def spell(value: object) -> str:
    """Write a value as the user does: ``True`` true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def allowed(field: dataclasses.Field[Any]) -> str:
    """Describe in a few words which values a setting takes."""
    if field.metadata["choices"] is not None:
        return ", ".join(field.metadata["choices"])
    kinds = {bool: "true, false", int: "integer", float: "number", str: "text"}
    limits = field.metadata["limits"]
    signs = {"low": ">=", "above": ">", "high": "<="}
    bounds = [f"{sign} {limits[end]:g}" for end, sign in signs.items() if limits[end] is not None]
    return " ".join([kinds[type(field.default)], ", ".join(bounds)]).strip()


def _check(key: str, value: Any, kind: Any, field: dataclasses.Field[Any]) -> Any:
    given, value = value, _convert(key, value, kind)
    choices = field.metadata["choices"]
    if choices is not None and value not in choices:
        raise invalid(key, value, suggest(str(value), choices))
    if kind in (int, float):
        _check_limits(key, given, value, field.metadata["limits"])
    return value


def _convert(key: str, value: Any, kind: Any) -> Any:
    """Turn a typed or a command-line value into ``kind`` without losing anything."""
    try:
        if kind is bool:
            if isinstance(value, bool):
                return value
            return {"true": True, "false": False}[str(value).lower()]
        if isinstance(value, bool) and kind is not str:
            raise ValueError
        if kind is int:
            number = float(value)
            if number != int(number):
                raise ValueError
            return int(value) if not isinstance(value, float) else int(number)
        if kind is float:
            return float(value)
        return spell(value)
    except (ValueError, KeyError, OverflowError, TypeError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise invalid(key, value, f"it takes {wanted}.") from None


def _check_limits(key: str, given: Any, value: float, limits: Mapping[str, float | None]) -> None:
    low, high, above = limits["low"], limits["high"], limits["above"]
    bad = (
        value != value
        or (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
        or value in (float("inf"), float("-inf"))
    )
    if bad:
        parts = [
            f"at least {low:g}" if low is not None else "",
            f"more than {above:g}" if above is not None else "",
            f"at most {high:g}" if high is not None else "",
        ]
        wanted = " and ".join(p for p in parts if p) or "finite"
        raise invalid(key, given, f"it must be {wanted}.")
