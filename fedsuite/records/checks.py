"""Whether what is read of a run's folder has the types that a run writes.

Readers trust a record that passes; a file that was cut, edited or mixed up is named instead.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from fedsuite.config import RunConfig
from fedsuite.core.client_ids import parse_freeloaders
from fedsuite.core.settings import kebab
from fedsuite.metrics import METRICS, SUMMARY_METRICS
from fedsuite.records.provenance import META

NEEDED = ("algo", "dataset", "model", "partition", "seed", "num-rounds", "num-clients")
SETTINGS = {
    kebab(field.name): type(field.default)
    for field in dataclasses.fields(RunConfig)
    if field.name != "params"
}
COUNTS = ("unscored_clients", "saved_models", "unsaved_models")
PARTED = ("other_output_accuracy", "class_accuracy", "personal_class_accuracy")
LARGEST = 2**53  # up to here every whole number is a float
ROW_TEXTS = ("phase", "status", "reason")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a recorded value is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= LARGEST


def is_whole(value: object) -> bool:
    """Return whether a recorded value is a whole number of at least 0."""
    return type(value) is int and 0 <= value <= LARGEST


def is_round(row: Mapping[str, Any]) -> bool:
    """Return whether a line of the history is a round."""
    measured = (name for name in row if name in METRICS)
    note = row.get("note", "")
    return (
        is_whole(row.get("round"))
        and isinstance(note, str)
        and all(_is_measure(name, row[name]) for name in measured)
    )


def is_client_row(row: Mapping[str, Any]) -> bool:
    """Return whether a line of the clients' file is of a client in a round."""
    plain = {name: value for name, value in row.items() if name not in PARTED}
    return (
        is_whole(row.get("round"))
        and is_whole(row.get("client"))
        and all(isinstance(row.get(name, ""), str) for name in ROW_TEXTS)
        and all(v is None or isinstance(v, str | bool) or is_number(v) for v in plain.values())
        and all(not isinstance(row[name], str) for name in row if name in METRICS)
        and all(_has_parts(row.get(name)) for name in PARTED)
    )


def check_config(document: Mapping[str, Any], file: str) -> None:
    """Refuse settings that lack something, or have values of a wrong type, as a ``ValueError``."""
    missing = [key for key in NEEDED if key not in document]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}")
    for key, value in document.items():
        wanted = SETTINGS.get(key)
        if key == META:
            _check_provenance(value, file)
        elif not isinstance(value, str | int | float) or not _has_type(value, wanted):
            raise _wrong(file, key, value)
    for key in ("num-rounds", "num-clients"):
        if not is_whole(document[key]) or document[key] == 0:
            raise _wrong(file, key, document[key])
    parse_freeloaders(str(document.get("freeloaders", "")), document["num-clients"])


def check_summary(document: Mapping[str, Any], file: str) -> None:
    """Refuse a summary that has values of a wrong type, as a ``ValueError``."""
    good: dict[str, bool] = {
        metric.name: _is_measure(metric.name, document.get(metric.name))
        for metric in SUMMARY_METRICS
    }
    good |= {name: _is_count(document.get(name)) for name in (*COUNTS, "failed_replies")}
    good["reason"] = isinstance(document.get("reason") or "", str)
    expelled = document.get("expelled") or []
    good["expelled"] = isinstance(expelled, list) and all(map(is_whole, expelled))
    good["target_metric"] = isinstance(document.get("target_metric") or "", str)
    good |= {name: _has_parts(document.get(name)) for name in PARTED}
    for name, is_good in good.items():
        if not is_good:
            raise _wrong(file, name, document.get(name))


def _check_provenance(document: object, file: str) -> None:
    if not isinstance(document, dict):
        raise _wrong(file, META, document)
    for key, value in document.items():
        if not isinstance(value, dict if key == "versions" else str):
            raise _wrong(file, f"{META}.{key}", value)


def _has_type(value: object, wanted: type | None) -> bool:
    if wanted in (int, float):
        return is_number(value) and (wanted is float or isinstance(value, int))
    return wanted is None or isinstance(value, wanted)


def _is_measure(name: str, value: object) -> bool:
    """Return whether a metric's value is a number or None; a share, such as accuracy, is finite."""
    if value is None or name in PARTED:
        return _has_parts(value)
    return is_number(value) and (not METRICS[name].share or math.isfinite(value))


def _has_parts(value: object) -> bool:
    """Return whether a value is None, or numbers by name."""
    return value is None or (isinstance(value, dict) and all(map(is_number, value.values())))


def _is_count(value: object) -> bool:
    return value is None or is_whole(value)


def _wrong(file: str, key: str, value: object) -> ValueError:
    text = repr(value)
    short = text if len(text) <= 40 else f"{text[:40]}..."
    return ValueError(f"{file} is damaged: {key} cannot be {short}")
