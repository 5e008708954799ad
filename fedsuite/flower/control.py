"""What Flower's own command line answers: who is online, how a run stands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError
from fedsuite.flower.commands import environment, executable

ANSWER_SECONDS = 60.0


class CommandFailed(UserError):
    """Flower's command line refused; the message says what it said."""


def flwr(words: Sequence[str], home: Path | None = None) -> dict[str, Any]:
    """Ask ``flwr ... --format json``; ``home`` is Flower's folder if not the user's."""
    try:
        done = subprocess.run(
            [*executable("flwr"), *words, "--format", "json"],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(
            f"`flwr {' '.join(words)}` did not answer within {ANSWER_SECONDS:.0f} s. Does the "
            "SuperLink run, and can it be reached from here?"
        ) from None
    answer = _read(done.stdout)
    if done.returncode or not answer.get("success"):
        said = answer.get("error-message") or (done.stdout + done.stderr).strip()
        raise CommandFailed(f"`flwr {' '.join(words)}` failed: {said}")
    return answer


def online_nodes(connection: str, home: Path | None = None) -> set[str]:
    """Return the ids of the SuperNodes that are connected now."""
    nodes = flwr(["supernode", "list", connection], home)["nodes"]
    return {str(node["node-id"]) for node in nodes if node["status"] == "online"}


def run_status(run_id: str, connection: str, home: Path | None = None) -> tuple[str, str]:
    """Return a run's status as Flower says it (``finished:completed``), and its details."""
    run = flwr(["list", connection, "--run-id", run_id], home)["runs"][0]
    return str(run["status"]), str(run["status-details"])


def stop_run(run_id: str, connection: str, home: Path | None = None) -> None:
    """Stop a run."""
    flwr(["stop", run_id, connection], home)


def _read(text: str) -> dict[str, Any]:
    start = text.find("{")
    try:
        return dict(json.loads(text[start:])) if start >= 0 else {}
    except ValueError:
        return {}
