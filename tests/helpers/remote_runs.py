"""What a SuperLink answers of a run, and what ``fake_flwr.py`` was asked."""

from __future__ import annotations

from pathlib import Path

STARTED = {"success": True, "run-id": "77", "federation-id": "@none/default"}
BEGIN = [
    "\x1b[92mINFO \x1b[0m:      Start `flwr-serverapp` process",
    "Successfully installed fedsuite to /srv/flower/apps/fedsuite.",
]
ROUNDS = [
    "fedsuite: results are in /srv/runs/mine",
    "fedsuite: round 0/2  accuracy 0.1000  1.00 s",
    "fedsuite: round 1/2  accuracy 0.5000  3 clients  1.00 s",
    "fedsuite: round 2/2  accuracy 0.7000  3 clients  1.00 s",
]


def asked(place: Path) -> list[str]:
    return [line.split()[0] for line in (place / "asked").read_text().splitlines()]
