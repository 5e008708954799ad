"""A stand-in for Flower's command line: prints what ``script.json`` says, notes what it is asked.

``script.json``: ``run`` is the answer to ``flwr run --format json``, given after ``run_seconds``;
``logs`` are the lines that one call of ``flwr log`` after another prints, ``statuses`` the answers
of ``flwr list``; the last of each is repeated. A line ``WAIT`` waits until the run is stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[1])
WORDS = sys.argv[2:]


def main() -> int:
    with (HERE / "asked").open("a") as file:
        file.write(" ".join(WORDS) + "\n")
    if WORDS[0] == "log":
        return log()
    assert WORDS[-2:] == ["--format", "json"]
    print(json.dumps(ANSWERS[WORDS[0]](), indent=2))
    return 0


def log() -> int:
    print("\x1b[92mINFO \x1b[0m:      Starting logstream for run_id `77`", file=sys.stderr)
    print("Using SuperLink: hub (hub.example.org:8000)", flush=True)
    for line in take("logs"):
        while line == "WAIT" and not (HERE / "stopped").exists():
            time.sleep(0.05)
        print(line, flush=True)
    return 0


def run() -> dict[str, Any]:
    settings = Path(WORDS[WORDS.index("--run-config") + 1])
    (HERE / "beside").write_text("\n".join(sorted(os.listdir(settings.parent))))
    (HERE / "settings.toml").write_text(settings.read_text())
    script = read_script()
    time.sleep(script.get("run_seconds", 0.0))
    return dict(script["run"])


def stop() -> dict[str, Any]:
    (HERE / "stopped").touch()
    return {"success": True, "run-id": WORDS[1]}


def status() -> dict[str, Any]:
    details = read_script().get("details", "N/A")
    run = {"run-id": "77", "status": take("statuses"), "status-details": details}
    return {"success": True, "runs": [run]}


def read_script() -> dict[str, Any]:
    return dict(json.loads((HERE / "script.json").read_text()))


def take(name: str) -> Any:
    """Return the next answer; the last one stays."""
    script = read_script()
    first, *rest = script[name]
    (HERE / "script.json").write_text(json.dumps(script | {name: rest or [first]}))
    return first


ANSWERS = {"run": run, "stop": stop, "list": status}
sys.exit(main())
