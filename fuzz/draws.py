"""Random settings: ordinary values, edges of what is allowed, absurd ones and wrong types.

A case is a function of the seed and its number, so that each can be repeated alone.
"""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import dataclass
from typing import Any

from fedsuite.config import setting_groups
from fedsuite.registry import ALGORITHMS

ABSURD: tuple[Any, ...] = (
    -1, -3, 0, 10**9, 2**63 - 1, 2**63, 10**22, -(2**63), 1e30, 1e308, -1e308, 5e-324, 1e-40, -0.0,
    math.nan, math.inf, -math.inf, "nan", "1e999", "1_000", "1__0", "0x10", "9" * 5000, "１２", "٣",
    "", " ", "-", "x", "true", "0", "-0", "1,2", "1,", ",", "-1,2", f"0,{10**22}", "x" * 1_000_001,
    "a\0b", "a\nb", "\udcff", "..", "../..", "-rf", "~nobody/x", "a/b", "é" * 200, "{}", "[]",
)  # fmt: skip
WRONG: tuple[Any, ...] = (None, [], [1], {}, True, False, 2.5, "2.5", "maybe", b"x", 1 + 2j)
TEXTS: dict[str, tuple[str, ...]] = {
    "freeloaders": ("1", "2", "0,", "1,3", "0"),
    "attackers": ("1", "0,", "0"),
    "run-name": ("mine", "a b", "Zoë"),
    "algo-settings": ("{}",),
    "label-column": ("y",),
}
STRAY = ("num-cleints", "taco.kapa", "nobody.x", "a b", "", ".", "params", "x" * 1000)
MOST_KEYS = 5


@dataclass(frozen=True)
class Case:
    """Settings as a user may give them; ``ordinary`` are the keys whose values are plausible."""

    number: int
    values: dict[str, Any]
    ordinary: frozenset[str] = frozenset()


def draw_case(seed: int, number: int) -> Case:
    """Draw an algorithm and a few settings."""
    draw = random.Random(f"{seed}/{number}")
    groups, algo = setting_groups(), draw.choice(sorted(ALGORITHMS))
    fields = groups[""] | groups[algo]
    own = [key for key in groups[algo] for _ in range(3)]  # as likely as the many shared keys
    keys = draw.sample([*groups[""], *own], draw.randint(1, MOST_KEYS))
    values, ordinary = {"algo": algo}, set()
    for key in keys:
        if key != "algo":
            values[key], is_ordinary = _value(draw, key, fields[key])
            ordinary |= {key} if is_ordinary else set()
    if draw.random() < 0.05:
        other = draw.choice([key for group in groups.values() for key in group])
        values[draw.choice([*STRAY, other])] = draw.choice(ABSURD)
    return Case(number, values, frozenset(ordinary & values.keys()))


def _value(draw: random.Random, key: str, field: dataclasses.Field[Any]) -> tuple[Any, bool]:
    """Return a value, and whether it is one that a user might want."""
    chance = draw.random()
    if chance < 0.75:
        return _plausible(draw, key, field), True
    if chance < 0.85:
        return _edge(draw, field), False
    return draw.choice(ABSURD if chance < 0.95 else WRONG), False


def _plausible(draw: random.Random, key: str, field: dataclasses.Field[Any]) -> Any:
    default, limits = field.default, field.metadata["limits"]
    if field.metadata["choices"] is not None:
        return draw.choice(field.metadata["choices"])
    if isinstance(default, bool):
        return draw.random() < 0.5
    if isinstance(default, str):
        return draw.choice(TEXTS.get(key, (default,)))
    low = limits["low"] if limits["low"] is not None else limits["above"]
    if isinstance(default, int):
        return draw.randint(int(low), min(int(limits["high"] or 20), max(3 * default, 5)))
    value = (default or 0.1) * 2.0 ** draw.uniform(-2, 2)
    return min(max(value, low), limits["high"] or value)


def _edge(draw: random.Random, field: dataclasses.Field[Any]) -> Any:
    """Return a bound, or a value just beyond it."""
    bounds = [bound for bound in field.metadata["limits"].values() if bound is not None]
    step = 1 if isinstance(field.default, int) else 1e-9
    bound = draw.choice(bounds or [0])
    return draw.choice([bound, bound - step, bound + step, str(bound), field.default])
