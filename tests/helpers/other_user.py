"""Code that runs as another user of the machine, where tests run as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

NOBODY = 65534
BECOME_NOBODY = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"


def run_as_nobody(imports: str, code: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run Python code as ``nobody`` and return its ``answer``.

    Imports come first and as root, whose home the interpreter may be in.
    """
    lines = ["import json, os, sys", imports, BECOME_NOBODY, textwrap.dedent(code)]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "print(json.dumps(answer))"])],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(environment or {})},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def need_root() -> None:
    """Skip a test unless it can become another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
