"""Typed settings declared once, and errors written for the person who made the mistake.

A group of settings is a frozen dataclass whose fields are made with :func:`setting`. From that
one declaration come the default, the help line and the check of a value that was typed.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")
Scalar = str | int | float | bool
MAX_INTEGER = 2**63 - 1  # Flower's run-config is TOML, whose integers have 64 bits
SMALLEST, LARGEST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127  # float32, as models are
MAX_TEXT = 1_000_000
MAX_SHOWN = 300


class UserError(Exception):
    """A mistake in what the user asked for; the message is a sentence that says what to do."""


class RunFailed(Exception):
    """The run cannot continue; the message says why, with a client's traceback if there is one."""


def invalid(key: str, value: object, reason: str) -> UserError:
    """Return the error for a value that ``key`` cannot have; ``reason`` says why, or what to do."""
    return UserError(f"invalid value '{shown(value)}' for {key}: {reason}")


def shown(value: object) -> str:
    """Return a value as a sentence quotes it: not too long, control characters escaped.

    Of long text both ends are kept, since that of a path is the file's name.
    """
    text, half = str(value), MAX_SHOWN // 2
    text = text if len(text) <= MAX_SHOWN else f"{text[:half]}...{text[-half:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def setting(
    default: Scalar,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Iterable[str] | None = None,
    others: str = "",
    alias: str = "",
    needs: str | tuple[str, ...] = (),
) -> Any:
    """Declare a setting: its default, one line of help, and which values are allowed.

    ``low`` and ``high`` are inclusive bounds, ``above`` an exclusive lower one. ``others`` says
    what there may be beside the ``choices``, to be checked elsewhere. ``alias`` is another key that
    users may write. ``needs`` is what must hold for the setting to have an effect,
    see :mod:`fedsuite.core.needs`.
    """
    limits = {"low": low, "high": high, "above": above}
    chosen = tuple(choices) if choices is not None else None
    return dataclasses.field(
        default=default,
        metadata={
            "help": description,
            "limits": limits,
            "choices": chosen,
            "others": others,
            "alias": alias,
            "needs": (needs,) if isinstance(needs, str) else needs,
        },
    )


def kebab(name: str) -> str:
    """Spell a field name as the user does: ``num_clients`` num-clients, ``lambda_`` lambda."""
    return name.rstrip("_").replace("_", "-")


def suggest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Suggest the nearest of the known names, if any is near, and list them all.

    ``prefix`` is what users write before each of the names.
    """
    names = sorted(known)
    near = difflib.get_close_matches(word[:MAX_SHOWN], names, n=1, cutoff=0.5)
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
            raise UserError(f"Unknown key '{prefix}{shown(key)}'. {suggest(key, fields, prefix)}")
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


def flatten(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Write settings of tables as dotted keys: ``{"taco": {"kappa": 1}}`` as ``taco.kappa``."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        inner = isinstance(value, Mapping)
        flat |= {f"{key}.{k}": v for k, v in value.items()} if inner else {key: value}
    return flat


def spell(value: object) -> str:
    """Write a value as the user does: ``True`` true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def allowed(field: dataclasses.Field[Any]) -> str:
    """Describe in a few words which values a setting takes."""
    if field.metadata["choices"] is not None:
        others = field.metadata["others"]
        return ", ".join([*field.metadata["choices"], *([f"or {others}"] if others else [])])
    kinds = {bool: "true, false", int: "integer", float: "number", str: "text"}
    limits = field.metadata["limits"]
    signs = {"low": ">=", "above": ">", "high": "<="}
    bounds = [f"{sign} {limits[end]}" for end, sign in signs.items() if limits[end] is not None]
    return " ".join([kinds[type(field.default)], ", ".join(bounds)]).strip()


def _check(key: str, value: Any, kind: Any, field: dataclasses.Field[Any]) -> Any:
    given, value = value, _convert(key, value, kind)
    choices = field.metadata["choices"] if not field.metadata["others"] else None
    if choices is not None and value not in choices:
        raise invalid(key, value, suggest(str(value), choices))
    if kind is str:
        _check_text(key, value)
    elif kind is not bool:
        _check_limits(key, given, value, field.metadata["limits"])
        _check_size(key, given, value)
    return value


def _convert(key: str, value: Any, kind: Any) -> Any:
    """Turn a typed or a command-line value into ``kind`` without losing anything.

    Numbers are written as in TOML: ``1_000``, but no digits of other scripts.
    """
    try:
        if kind is bool:
            if isinstance(value, bool):
                return value
            return {"true": True, "false": False}[str(value).lower()]
        if kind is str and isinstance(value, Path):
            return str(value)
        if not isinstance(value, str | int | float):
            raise TypeError
        if kind is str:
            return spell(value)
        if isinstance(value, bool) or not str(value).isascii():
            raise ValueError
        if kind is float:
            return float(value) + 0.0  # -0.0 is 0.0
        whole = int(value)
        if isinstance(value, float) and whole != value:
            raise ValueError
        return whole
    except (ValueError, KeyError, OverflowError, TypeError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise invalid(key, value, f"it takes {wanted[kind]}.") from None


def _check_text(key: str, text: str) -> None:
    """Refuse text that no file could hold, or that is no name of anything."""
    if len(text) > MAX_TEXT:
        raise invalid(key, text, f"it has {len(text)} characters, and at most {MAX_TEXT} fit.")
    strange = [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n\r"]
    if strange:
        raise invalid(key, text, f"the character '{shown(strange[0])}' cannot be part of it.")


def _check_limits(key: str, given: Any, value: float, limits: Mapping[str, float | None]) -> None:
    low, high, above = limits["low"], limits["high"], limits["above"]
    bad = (
        not math.isfinite(value)
        or (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
    )
    if bad:
        parts = [
            f"at least {low}" if low is not None else "",
            f"more than {above}" if above is not None else "",
            f"at most {high}" if high is not None else "",
        ]
        wanted = " and ".join(p for p in parts if p) or "finite"
        raise invalid(key, given, f"it must be {wanted}.")


def _check_size(key: str, given: Any, value: float) -> None:
    """Refuse numbers that Flower's run-config, or a model's float32, cannot hold."""
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise invalid(key, given, f"it must be at most {MAX_INTEGER} in size.")
    elif value and not SMALLEST <= abs(value) <= LARGEST:
        raise invalid(
            key,
            given,
            f"models are float32, so it must be {SMALLEST:.2g} to {LARGEST:.2g} in size.",
        )
