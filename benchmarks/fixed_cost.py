"""The fixed cost of a run: from Enter to the prompt, the default one and one round on Ray."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import startup
from benchmarks.startup import ENDED, HERE, TimeLine
from benchmarks.verdicts import Verdict, at_most
from fedsuite.core.processes import start, stop

AUTO = ("run", "fedavg")
AUTO_SECONDS, RAY_SECONDS = 6.0, 13.0


@dataclass(frozen=True)
class FixedCost:
    """Seconds of runs with the engine chosen by itself, and time lines of runs on Ray."""

    auto: Sequence[float]
    ray: Sequence[TimeLine]

    def verdicts(self) -> list[Verdict]:
        """Judge both."""
        ray = [line.events[ENDED] for line in self.ray]
        return [
            at_most("`fedsuite run fedavg`, Enter to prompt", AUTO_SECONDS, " s", self.auto, 1),
            at_most("one round on Ray, Enter to prompt", RAY_SECONDS, " s", ray, 1),
        ]

    def sections(self) -> list[str]:
        """Write where the time goes."""
        runs = ", ".join(f"{seconds:.1f}" for seconds in self.auto)
        return [
            "## The fixed cost of a run",
            f"`fedsuite run fedavg` on digits, from Enter to the prompt: {runs} s. Below, "
            f"`fedsuite {' '.join(startup.RUN)}`: medians of {len(self.ray)} runs.",
            startup.report({"now": self.ray}),
        ]


def measure(repeats: int) -> FixedCost:
    """Run both commands some times, in turn."""
    auto, ray = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            auto.append(seconds_of(AUTO, Path(folder)))
            ray.append(startup.watch(HERE, Path(folder)))
    return FixedCost(auto, ray)


def seconds_of(words: Sequence[str], folder: Path) -> float:
    """Return how long a command of the suite takes in a folder."""
    environment = os.environ | {"PYTHONPATH": str(HERE), "FLWR_TELEMETRY_ENABLED": "0"}
    command, log = [sys.executable, "-P", "-m", "fedsuite.cli", *words], folder / "log"
    began = time.monotonic()
    with log.open("wb") as output:
        child = start(command, environment, cwd=folder, output=output)
    try:
        status = child.wait()
    finally:
        stop(child)
    if status:
        sys.exit(log.read_text(errors="replace"))
    return time.monotonic() - began
