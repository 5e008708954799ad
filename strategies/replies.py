"""Checks of what nodes reply; nothing is used before it is checked.

A reply that is late, malformed, not finite or for another node's client becomes an error in the
record; the round continues without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from flwr.app import Message, RecordDict

from fedsuite.core.class_counts import check_counts
from fedsuite.core.messages import Result, clean_reason, clients_in, read_result
from fedsuite.core.text import clean_line

MAX_EXAMPLES = 10**9
MAX_UNREQUESTED = 10
MAX_NUMBER = float(np.finfo(np.float32).max)
BEYOND = "beyond float32"
NOT_FINITE = re.compile(
    rf"metric '.*' is (nan|-?inf|\S+, {BEYOND})|vector '.*' has NaN or infinite values"
)
AUC = "auc"
LIMITS = {"steps": (0.0, 1e9), "seconds": (0.0, 1e9), "cpu-seconds": (0.0, 1e9)}


def read_replies(
    replies: Iterable[Message],
    asked: Mapping[int, list[int]],
    read: Callable[[RecordDict, int], Result] = read_result,
) -> tuple[list[Result], list[tuple[int, str]]]:
    """Return a result per client asked, in client order, and clients that were not asked."""
    results: dict[int, Result] = {}
    unrequested: list[tuple[int, str]] = []
    for reply in replies:
        node = reply.metadata.src_node_id
        clients = asked.get(node, [])
        if reply.has_error():
            reason = clean_reason(f"node failed: {reply.error.reason}")
            results |= {c: Result(c, error=reason) for c in clients}
            continue
        results |= {c: read(reply.content, c) for c in clients}
        others = sorted(clients_in(reply.content) - set(clients))[:MAX_UNREQUESTED]
        unrequested += [(c, f"node {node} was not asked for this client") for c in others]
    expected = sorted(client for cohort in asked.values() for client in cohort)
    late = {c: Result(c, error="no reply in time") for c in expected if c not in results}
    return [(results | late)[client] for client in expected], unrequested


def check_update(
    result: Result,
    lengths: Mapping[str, int],
    needs_metrics: Iterable[str],
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Return what is wrong with a client's vectors and numbers; empty if nothing is."""
    missing = [name for name in lengths if name not in result.arrays]
    missing += [name for name in needs_metrics if name not in result.metrics]
    if missing:
        return f"'{missing[0]}' is missing"
    for name, vector in result.arrays.items():
        if name not in lengths:
            return f"vector '{clean_line(name, 50)}' was not asked for"
        if vector.dtype != np.float32 or vector.shape != (lengths[name],):
            return (
                f"vector '{name}' is {vector.dtype}{list(vector.shape)}, "
                f"expected float32[{lengths[name]}]"
            )
        if not np.isfinite(vector).all():
            return f"vector '{name}' has NaN or infinite values"
    for name, (low, high) in (LIMITS | dict(limits or {})).items():
        if not low <= result.metrics.get(name, low) <= high:
            return f"invalid value {result.metrics[name]} for {name}"
    return _check_numbers(result.metrics)


def is_divergence(reason: str) -> bool:
    """Return whether a client was left out since its numbers are not finite in float32."""
    return NOT_FINITE.fullmatch(reason) is not None


def check_score(result: Result, num_classes: int = 0) -> str:
    """Return what is wrong with a client's score of itself; empty if nothing is.

    A client without test rows has none of them correct.
    """
    if (result.metrics.get("num-examples"), result.metrics.get("correct")) == (0, 0):
        return ""
    problem = _check_numbers(result.metrics)
    if problem:
        return problem
    count, correct = result.metrics["num-examples"], result.metrics.get("correct", -1)
    if not 0 <= correct <= count:
        return f"invalid value {result.metrics.get('correct')} for correct"
    if not 0 <= result.metrics.get(AUC, 0) <= 1:
        return f"invalid value {result.metrics[AUC]} for {AUC}"
    return check_counts(result.counts, count, correct, num_classes)


def snake_case(metrics: Mapping[str, float]) -> dict[str, float]:
    """Spell a client's metrics as the record does, without the round, which the server sets."""
    return {name.replace("-", "_"): v for name, v in metrics.items() if name != "round"}


def _check_numbers(metrics: Mapping[str, float]) -> str:
    count = metrics.get("num-examples", 0)
    if count != int(count) or not 1 <= count <= MAX_EXAMPLES:
        return f"invalid value {count} for num-examples"
    for name, value in metrics.items():
        if not abs(value) <= MAX_NUMBER:
            return f"metric '{name}' is {value:g}, {BEYOND}"
    return ""
