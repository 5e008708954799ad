"""What a shell offers at the Tab key: algorithms, settings and their values, runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from fedsuite.core.installation import SUITES, shipped_files
from fedsuite.core.plugins import registered
from fedsuite.records.folder import DEFAULT_RESULTS, SuiteFolder, all_runs, subfolders

Offers = list[tuple[str, str]]


def algorithms(incomplete: str) -> Offers:
    """Offer the algorithms."""
    from fedsuite.registry import ALGORITHMS

    ours = [(name, entry.summary) for name, entry in sorted(ALGORITHMS.items())]
    return [*ours, *registered("algo").items()]


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the runs of the results folder."""
    return [name for name, run in all_runs(_results(ctx)).items() if run.exists]


def runs_and_suites(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the runs and suites of the results folder."""
    suites = [path.name for path in subfolders(_results(ctx)) if SuiteFolder(path).exists]
    return sorted([*runs(ctx, incomplete), *suites])


def suites(incomplete: str) -> list[str]:
    """Offer the suites that come with fedsuite."""
    return list(shipped_files(SUITES))


def settings(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer ``KEY=``, and values once the key is clear.

    Bash breaks words at ``=``, so there a value comes alone and its key is in the words before.
    """
    fields = _fields(str(ctx.params.get("algo") or ""))
    before = _key_before(list(ctx.params.get("settings") or ()), incomplete)
    if before in fields:
        return _values(fields[before])
    key, separator, _ = incomplete.partition("=")
    if separator:
        return _spell(key, _values(fields[key])) if key in fields else []
    near = [name for name in fields if name.startswith(incomplete)]
    offers = [(f"{name}=", fields[name].metadata["help"]) for name in near]
    if len(near) == 1:  # several offers that begin alike keep the shell from adding a space
        values = _spell(near[0], _values(fields[near[0]]))
        return values if len(values) > 1 else [*offers, *values]
    return offers


def _fields(algo: str) -> dict[str, dataclasses.Field[Any]]:
    from fedsuite.config import setting_groups

    return {
        key: field
        for prefix, group in setting_groups().items()
        if prefix in ("", algo)
        for key, field in group.items()
    }


def _key_before(words: Sequence[str], incomplete: str) -> str:
    if words and words[-1] == "=":
        return words[-2] if len(words) > 1 else ""
    return words[-1] if words and not incomplete else ""


def _values(field: dataclasses.Field[Any]) -> Offers:
    if field.metadata["choices"]:
        installed = registered(field.name) if field.metadata["others"] else {}
        return [*((choice, "") for choice in field.metadata["choices"]), *installed.items()]
    if isinstance(field.default, bool):
        return [("true", ""), ("false", "")]
    return [(str(field.default), "default")] if field.default != "" else []


def _spell(key: str, values: Offers) -> Offers:
    return [(f"{key}={value}", meaning) for value, meaning in values]


def _results(ctx: typer.Context) -> Path:
    return Path(str(ctx.params.get("results_dir") or DEFAULT_RESULTS))
