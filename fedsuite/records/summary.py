"""The summary of a run, computed from its settings and its rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median, pstdev
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.records.folder import RunState

SMOOTHNESS_CHANGES = 20
OF_CLIENTS = tuple(
    f"personal_{name}"
    for name in (
        "mean std worst best worst_tenth macro_f1 balanced_accuracy auc class_accuracy".split()
    )
)
Rows = Sequence[Mapping[str, Any]]


def summarise(
    config: RunConfig, history: Rows, expelled: Collection[int], status: str, reason: str = ""
) -> dict[str, Any]:
    """Return the summary of a run that ended as ``status``, one of :class:`RunState`."""
    scored = [row["accuracy"] for row in history if row.get("accuracy") is not None]
    later = [r["accuracy"] for r in history if r.get("accuracy") is not None and r["round"] > 0]
    personal = [row for row in history if row.get("personal_accuracy") is not None]
    losses = [row["loss"] for row in history if row.get("loss") is not None]
    last = _last_due(config, history, "personal_accuracy", config.personal_eval == "on")
    final = _last_due(config, history, "accuracy")
    reached = rounds_to_target(history, config)
    bad = (*config.freeloader_ids, *config.attacker_ids)
    return {
        "status": RunState(status).value,
        "reason": reason,
        "algo": config.algo,
        "dataset": config.dataset,
        "model": config.model,
        "partition": config.partition,
        "seed": config.seed,
        "num_clients": config.num_clients,
        "rounds": max((row["round"] for row in history), default=0),
        "final_accuracy": final.get("accuracy"),
        "best_accuracy": max(scored, default=None),
        "mean_last5_accuracy": _mean(later[-5:]),
        **{name: final.get(name) for name in ("macro_f1", "balanced_accuracy", "auc")},
        "class_accuracy": final.get("class_accuracy"),
        "smoothness": smoothness(scored),
        "final_loss": losses[-1] if losses else None,
        "personal_accuracy": last.get("personal_accuracy"),
        "mean_last5_personal_accuracy": _mean([r["personal_accuracy"] for r in personal[-5:]]),
        "best_personal_accuracy": max((r["personal_accuracy"] for r in personal), default=None),
        **{name: last.get(name) for name in OF_CLIENTS},
        "target_metric": config.target_metric if config.target_accuracy else None,
        "target_accuracy": config.target_accuracy or None,
        "rounds_to_target": reached,
        "compute_seconds_to_target": None
        if reached is None
        else _total([r for r in history if r["round"] <= reached], "compute_seconds"),
        "compute_seconds_per_round": _median([row.get("compute_seconds") for row in history]),
        "wall_seconds": _total(history, "wall_seconds"),
        "client_compute_seconds": _total(history, "client_compute_seconds"),
        "cpu_share": cpu_share(history),
        "upload_bytes": int(_total(history, "upload_bytes")),
        "download_bytes": int(_total(history, "download_bytes")),
        "failed_replies": int(_total(history, "failed")),
        "missing_updates": missing_updates(history),
        "unscored_clients": int(last.get("unscored") or 0),
        "expelled": sorted(expelled),
        "freeloader_tpr": share_of(expelled, config.freeloader_ids),
        "attacker_tpr": share_of(expelled, config.attacker_ids),
        "freeloader_fpr": share_of(expelled, set(range(config.num_clients)) - set(bad)),
    }


def missing_updates(history: Rows) -> float:
    """Return the share of the client updates asked for that are missing, 0 to 1.

    A client that is expelled, or whose node is not connected, is not asked.
    """
    failed = _total(history, "failed")
    asked = failed + _total(history, "clients")
    return failed / asked if asked else 0.0


def missing_sentence(summary: Mapping[str, Any]) -> str:
    """Say which updates, scores and models of clients a run lacks; empty if it is complete."""
    parts = []
    share = summary.get("missing_updates") or 0.0
    if share:
        percent = f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"
        count = summary.get("failed_replies", "?")
        parts.append(f"{percent} % of the client updates are missing ({count})")
    if unscored := summary.get("unscored_clients"):
        parts.append(f"{unscored} client{'s' * (unscored != 1)} unscored in the last evaluation")
    if unsaved := summary.get("unsaved_models"):
        asked = unsaved + (summary.get("saved_models") or 0)
        parts.append(f"{unsaved} of {asked} client models not saved")
    return ", ".join(parts)


def _last_due(
    config: RunConfig, history: Rows, name: str, is_measured: bool = True
) -> Mapping[str, Any]:
    """Return the last round in which a score was due, though it may be lacking; else empty."""

    def is_due(number: int) -> bool:
        return number > 0 and (number % config.eval_every == 0 or number == config.num_rounds)

    due = (r for r in history if r.get(name) is not None or (is_measured and is_due(r["round"])))
    return max(due, key=lambda row: int(row["round"]), default={})


def rounds_to_target(history: Rows, config: RunConfig) -> int | None:
    """Return the first round whose accuracy, or other target metric, reaches the target."""
    target, name = config.target_accuracy, config.target_metric.replace("-", "_")
    if not target:
        return None
    return next((r["round"] for r in history if (r.get(name) or 0.0) >= target), None)


def cpu_share(history: Rows) -> float | None:
    """Return which share of a core clients had while they computed, at most 1."""
    names = ("client_cpu_seconds", "client_compute_seconds")
    timed = [row for row in history if all(row.get(name) is not None for name in names)]
    cpu, seconds = (_total(timed, name) for name in names)
    return min(cpu / seconds, 1.0) if seconds > 0 else None


def smoothness(accuracies: Sequence[float]) -> float | None:
    """Return the deviation of the last 20 changes from one score to the next; small is smooth."""
    recent = accuracies[-SMOOTHNESS_CHANGES - 1 :]
    changes = [after - before for before, after in pairwise(recent)]
    return pstdev(changes) if changes else None


def share_of(expelled: Collection[int], clients: Collection[int]) -> float | None:
    """Return which share of some clients is expelled; None if there are none."""
    return len(set(expelled) & set(clients)) / len(clients) if clients else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _total(history: Rows, name: str) -> float:
    return float(sum(row.get(name) or 0 for row in history))
