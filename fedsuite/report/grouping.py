"""Lay runs out by the values of a setting or of a suite's label, to compare these to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedsuite.config import FOLLOWS_ALGO, RUNTIME_KEYS
from fedsuite.core.settings import invalid, kebab, spell, suggest
from fedsuite.records.collection import METHOD, Collection, lay_out
from fedsuite.records.provenance import META, RUN_ID
from fedsuite.records.reader import Run

NO_GROUPS = frozenset(("seed", RUN_ID, META, *map(kebab, RUNTIME_KEYS)))


def group_by(collection: Collection, key: str) -> Collection:
    """Return runs with a row per value of a key; all else that tells them apart makes columns."""
    if key == "seed":
        raise invalid("--by", key, "comparisons are paired over seeds. Give another setting.")
    if key == collection.rows:
        return collection
    if collection.of_suite and key in collection.columns:
        return _by_label(collection, key)
    runs, is_method = collection.runs, key in ("algo", METHOD)
    found = lay_out(collection.name, runs) if is_method else _by_setting(runs, key)
    if not collection.of_suite:
        return found
    metric, better, also = collection.metric, collection.better, collection.also
    return replace(found, metric=metric, better=better, also=also, planned=collection.planned)


def _by_label(collection: Collection, key: str) -> Collection:
    """Swap a suite's rows for one of its columns."""
    columns = [name for name in (collection.rows, *collection.columns) if name != key]
    runs = [
        replace(run, labels={**run.labels, key: f"{key}={run.labels[key]}"})
        for run in collection.runs
        if key in run.labels
    ]
    return replace(collection, runs=runs, rows=key, columns=columns)


def _by_setting(runs: Sequence[Run], key: str) -> Collection:
    known = dict.fromkeys(k for run in runs for k in run.config if k not in NO_GROUPS)
    if key not in known:
        raise invalid("--by", key, suggest(key, known))
    having = sorted((run for run in runs if key in run.config), key=lambda run: _order(run, key))
    without = [{k: v for k, v in run.config.items() if k != key} for run in having]
    laid = lay_out(
        "compare", [replace(r, config=config) for r, config in zip(having, without, strict=True)]
    )
    methods = laid.row_names()
    follow = [k for k in FOLLOWS_ALGO if k != key and _differs_within_a_method(laid.runs, k)]
    columns = [*([METHOD] if len(methods) > 1 else []), *laid.columns, *follow]
    labelled = [
        replace(
            run,
            config=whole.config,
            labels={
                **run.labels,
                **{name: run.config.get(name) for name in follow},
                key: f"{key}={spell(whole.config[key])}",
            },
        )
        for run, whole in zip(laid.runs, having, strict=True)
    ]
    lacking = [
        f"left out: {run.name}, {run.config.get('algo')} has no setting {key}."
        for run in runs
        if key not in run.config
    ]
    return replace(
        laid,
        runs=labelled,
        rows=key,
        columns=[name for name in columns if name != key],
        remarks=[*lacking, *laid.remarks],
    )


def _order(run: Run, key: str) -> tuple[bool, object]:
    value = run.config[key]
    return isinstance(value, str), value


def _differs_within_a_method(runs: Sequence[Run], key: str) -> bool:
    pairs = {(run.labels[METHOD], str(run.config.get(key))) for run in runs}
    return len(pairs) > len({method for method, _ in pairs})
