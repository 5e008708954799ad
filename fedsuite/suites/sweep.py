"""A sweep: all combinations of the values that settings are given, as a suite without a file."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsuite import registry
from fedsuite.config import RunConfig, all_defaults, parse
from fedsuite.core.plugins import short_name
from fedsuite.core.run_names import check_run_name
from fedsuite.core.settings import UserError, shown, spell
from fedsuite.core.value_lists import PLACES
from fedsuite.metrics import FINAL_SCORES
from fedsuite.suites.definition import Label, Plan, Settings, Suite

DIGITS = 6
NO_EFFECT = "–"  # the label of a setting that makes no difference to a run


def make_sweep(
    swept: Mapping[str, Sequence[Any]],
    fixed: Mapping[str, Any],
    given: Collection[str],
    name: str,
    words: Sequence[str],
) -> Suite:
    """Return all combinations of what is ``swept``, with what is ``fixed`` for all of them.

    Either of the two has ``algo``. The settings ``given`` by the user, not by a file, must have an
    effect on some run; where values of one make no difference, they are one run. ``words`` are
    those of the command. Without a name one is made from the keys.
    """
    if not swept:
        raise UserError("A sweep needs several values of a setting, e.g. seed=1,2,3.")
    if not_swept := [key for key in swept if key in PLACES]:
        raise UserError(f"'{not_swept[0]}' takes one value: all runs of a sweep are in one place.")
    shared = {key: value for key, value in fixed.items() if key not in PLACES}
    axes = {key: _labels(key, values) for key, values in swept.items()}
    algos = [str(algo) for algo in axes.get("algo", [shared.get("algo")])]
    plans = []
    for labels in itertools.product(*axes.values()):
        chosen = {"algo": algos[0], **dict(zip(axes, labels, strict=True))}
        plans.append(Plan(chosen, _without_others(shared | chosen, algos)))
    _refuse_idle(plans, given)
    name = name or _default_name(axes, shared)
    check_run_name(name)
    keys = [key for key in axes if key != "seed"]
    rows = "algo" if "algo" in axes or not keys else keys[0]
    sweep = Suite(
        path=Path(name),
        scale="",
        title=f"Sweep of {', '.join(axes)}",
        note="",
        metric=FINAL_SCORES[0].name,
        also=[],
        rows=rows,
        columns=[key for key in keys if key != rows],
        paper=[],
        plans=plans,
        sweep=tuple(words),
    )
    configs = [sweep.resolve(plan) for plan in plans]
    metric, *also = _scores(configs)
    return dataclasses.replace(sweep, plans=_merge(plans, configs), metric=metric, also=also)


def _labels(key: str, values: Sequence[Any]) -> list[Label]:
    """Return values as their setting has them, so that 1e-2 and 0.01 are one label."""
    kind = type(all_defaults().get(key, ""))
    labels = [_label(kind, value) for value in values]
    if not labels:
        raise UserError(f"{key} is given no value to sweep.")
    for place, label in enumerate(labels):
        if label in labels[:place]:
            raise UserError(f"{key} is given the value '{shown(label)}' twice. Leave one out.")
    return labels


def _label(kind: type[Any], value: Any) -> Label:
    value = value.item() if hasattr(value, "item") else value
    if kind in (int, float) and not isinstance(value, bool):
        try:
            number: Label = kind(value)
        except (ValueError, TypeError, OverflowError):
            return spell(value)  # which is refused with the setting's own sentence
        if isinstance(value, str) or number == value:
            return number
    return value if isinstance(value, int | float) and not isinstance(value, bool) else spell(value)


def _without_others(settings: Settings, algos: Sequence[str]) -> Settings:
    """Leave out the own settings of the sweep's other algorithms."""
    mine = registry.namespace(str(settings["algo"]))
    others = {registry.namespace(algo) for algo in algos} - {mine}
    return {k: v for k, v in settings.items() if "." not in k or k.split(".")[0] not in others}


def _refuse_idle(plans: Sequence[Plan], given: Collection[str]) -> None:
    """Refuse a setting that the user gave and that has an effect on no run."""
    for key in given:
        problem = None
        for plan in plans:
            try:
                parse(plan.settings, idle=frozenset({key}))
            except UserError as error:
                problem = problem or error
            else:
                break
        else:
            if problem is not None:
                raise problem


def _default_name(axes: Mapping[str, Sequence[Label]], shared: Settings) -> str:
    """Name a sweep by its keys, and by a hash of what all its runs share."""
    words = [] if "algo" in axes else [short_name(str(shared["algo"]))]
    text = json.dumps({key: spell(value) for key, value in shared.items()}, sort_keys=True)
    return "-".join([*words, *axes, hashlib.sha256(text.encode()).hexdigest()[:DIGITS]])


def _scores(configs: Sequence[RunConfig]) -> list[str]:
    """Return the scores that runs have: of the global model, of the clients' own."""
    shares = any(registry.find(config.algo).strategy.shares_model for config in configs)
    personal = any(config.personal_eval == "on" for config in configs)
    found = [m.name for m, has in zip(FINAL_SCORES, (shares, personal), strict=True) if has]
    return found or [FINAL_SCORES[0].name]


def _merge(plans: Sequence[Plan], configs: Sequence[RunConfig]) -> list[Plan]:
    """Make one of the runs that have the same settings, without the labels that they differ in."""
    same: dict[RunConfig, list[Plan]] = {}
    for plan, config in zip(plans, configs, strict=True):
        same.setdefault(config, []).append(plan)
    merged = []
    for first, *others in same.values():
        differ = [k for k in first.labels if any(o.labels[k] != first.labels[k] for o in others)]
        merged.append(Plan(first.labels | dict.fromkeys(differ, NO_EFFECT), first.settings))
    return merged
