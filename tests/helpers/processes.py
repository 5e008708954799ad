"""Start the command as a user would, and kill it as a power cut would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


def start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start ``fedsuite`` in a folder."""
    extra = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    path = os.pathsep.join(filter(None, [extra, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "fedsuite.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(arguments: list[str], folder: Path, seconds: float = 300) -> tuple[int, str]:
    """Run ``fedsuite`` to its end; return its status and what it printed."""
    process = start(arguments, folder)
    try:
        out, _ = process.communicate(timeout=seconds)
    finally:
        kill_tree(process)
    return process.returncode, out.decode(errors="replace")


def kill_when(
    process: subprocess.Popen[bytes], ready: Callable[[], bool], delay: float, seconds: float = 120
) -> bool:
    """Kill -9 the whole tree a little after ``ready``; say whether it was still running."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and not ready() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(delay)
    running = process.poll() is None
    kill_tree(process)
    return running


def kill_alone(process: subprocess.Popen[bytes], seconds: float = 30) -> list[psutil.Process]:
    """Kill -9 the command only; return which Flower processes and workers outlive it.

    Ray's own agents end too, in their own time.
    """
    names = ("flwr", "flower", "ClientApp")
    below = psutil.Process(process.pid).children(recursive=True)
    family = [p for p in below if any(n in f"{p.name()} {p.cmdline()}" for n in names)]
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(family, timeout=seconds)
    return [member for member in left if member.is_running() and member.status() != "zombie"]


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 a process and everything below it, all at once."""
    try:
        family = [
            *psutil.Process(process.pid).children(recursive=True),
            psutil.Process(process.pid),
        ]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(family, timeout=10)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def lines_in(path: Path) -> int:
    """Count the lines of a file that may not be there yet."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
