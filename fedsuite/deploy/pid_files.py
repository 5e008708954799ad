"""Pid files, by which a later command finds the processes of a federation again.

A federation outlives the command that started it; each of its processes has a file ``NAME.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fedsuite.core import processes
from fedsuite.core.files import write_json
from fedsuite.core.processes import Process


def start_with_pid_file(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    mark: str,
    log: Path,
    cwd: Path,
    pids: Path,
) -> Process:
    """Start a process that outlives this one; write its pid file, append its output to ``log``."""
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


def read_pid_files(pids: Path) -> list[Process]:
    """Return the processes that have a pid file in a folder, running or not."""
    paths = sorted(pids.glob("*.json"))
    return [Process(**json.loads(path.read_text())) for path in paths]
