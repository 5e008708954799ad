"""The processes of a federation, which outlive the command that started them.

Each is noted in a folder as ``NAME.json``, so that a later command finds it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fedsuite.core import processes
from fedsuite.core.files import write_json
from fedsuite.core.processes import Process


def start_noted(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    mark: str,
    log: Path,
    cwd: Path,
    pids: Path,
) -> Process:
    """Start a process that outlives this one, its output appended to ``log``; note its pid."""
    for folder in (log.parent, pids):
        folder.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = processes.start(
            command,
            environment,
            name=name,
            mark=mark,
            cwd=cwd,
            output=output,
            outlives_parent=True,
        )
    write_json(pids / f"{name}.json", asdict(child.identity))
    return child.identity


def read_processes(pids: Path) -> list[Process]:
    """Return the processes noted in a folder, running or not."""
    paths = sorted(pids.glob("*.json"))
    return [Process(**json.loads(path.read_text())) for path in paths]
