"""Start the command as a user would, and kill it as a power cut would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fedsuite.core import processes
from fedsuite.core.processes import Child

ROOT = Path(__file__).parents[2]


def start(arguments: list[str], folder: Path) -> Child:
    """Start ``fedsuite`` in a folder."""
    extra = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    path = os.pathsep.join(filter(None, [extra, os.environ.get("PYTHONPATH", "")]))
    return processes.start(
        [sys.executable, "-m", "fedsuite.cli", *arguments],
        os.environ | {"PYTHONPATH": path},
        cwd=folder,
        output=subprocess.PIPE,
    )


def finish(arguments: list[str], folder: Path, seconds: float = 300) -> tuple[int, str]:
    """Run ``fedsuite`` to its end; return its status and what it printed."""
    process = start(arguments, folder)
    try:
        out, _ = process.communicate(timeout=seconds)
    finally:
        kill_all(process)
    return process.returncode, out.decode(errors="replace")


def kill_when(
    process: Child, ready: Callable[[], bool], delay: float, seconds: float = 120
) -> bool:
    """Kill -9 the whole family a little after ``ready``; return whether it was still running."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and not ready() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(delay)
    running = process.poll() is None
    kill_all(process)
    return running


def kill_alone(process: Child, seconds: float = 30) -> list[psutil.Process]:
    """Kill -9 the command only; return which Flower processes and workers outlive it.

    Ray's own agents end too, in their own time.
    """
    names = ("flwr", "flower", "ClientApp")
    others = [p for p in process.identity.family() if p.pid != process.pid]
    family = [p for p in others if any(n in f"{p.name()} {p.cmdline()}" for n in names)]
    assert family
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(family, timeout=seconds)
    return [member for member in left if member.is_running() and member.status() != "zombie"]


def kill_all(process: Child) -> None:
    """Kill -9 a process and all its descendants at once."""
    processes.kill(process)
    if process.stdout is not None:
        process.stdout.close()


def lines_in(path: Path) -> int:
    """Count the lines of a file that may not exist yet."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
