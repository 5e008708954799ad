"""Programs of tests that have a server of forks.

A process forks well while it has one thread, so each is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsuite.flower.forks import can_fork

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
BEFORE = """\
import atexit, gc, io, json, os, signal, socket, subprocess, sys, threading, time
import psutil
from fedsuite.flower import forks
from fedsuite.flower.forks import Forked, ForkServer

def load(name):
    assert name in programs, f"no program {name}"
    return programs[name]

def start(name, *words, **how):
    child = server.popen([name, *words], **how)
    assert isinstance(child, Forked)
    return child

def say(what):
    print(json.dumps(what), flush=True)

def gone(process):
    psutil.wait_procs([process], timeout=30)
    return not process.is_running()

forks.console_script = load
server = ForkServer()
"""
needs_forks = pytest.mark.skipif(not can_fork(), reason="this system forks no such processes")


def finish(script: str) -> tuple[list[Any], str]:
    """Run a program; return what it has said, by line, and its errors.

    Its output is buffered, as it is without a terminal.
    """
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + script],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def answers(script: str) -> list[Any]:
    """Run a program; return what it has said, by line."""
    return finish(script)[0]
