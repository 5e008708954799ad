"""A stand-in for Flower's command line: says what a file next to it says, notes what it is asked.

``script.json``: ``run`` and ``log`` are lines to print, ``code`` the status of ``run``,
``statuses`` what ``list`` answers, one after another, the last one for good; a line ``WAIT`` holds
until the run is stopped.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[1])
WORDS = sys.argv[2:]


def main() -> int:
    script = json.loads((HERE / "script.json").read_text())
    with (HERE / "asked").open("a") as file:
        file.write(" ".join(WORDS) + "\n")
    if WORDS[0] in ("run", "log"):
        if WORDS[0] == "run":
            settings = WORDS[WORDS.index("--run-config") + 1]
            (HERE / "settings.toml").write_text(Path(settings).read_text())
        for line in script[WORDS[0]]:
            while line == "WAIT" and not (HERE / "stopped").exists():
                time.sleep(0.05)
            print(line, flush=True)
        return int(script.get("code", 0))
    if WORDS[0] == "stop":
        (HERE / "stopped").touch()
        print(json.dumps({"success": True}))
        return 0
    statuses = script["statuses"]
    run = {"status": statuses[0], "status-details": script.get("details", "N/A")}
    if len(statuses) > 1:
        (HERE / "script.json").write_text(json.dumps(script | {"statuses": statuses[1:]}))
    print(json.dumps({"success": True, "runs": [run]}))
    return 0


sys.exit(main())
