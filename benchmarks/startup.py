"""Where the fixed seconds of a run on Ray go: one round on digits, watched from outside.

``python -m benchmarks.startup`` runs it some times and prints the median time line, by the
processes that appear and the lines that the run records, and the CPU time by program. With
``--against DIR`` another checkout takes turns with this one. Wall times mean something on an idle
machine alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.report import table
from fedsuite.core.processes import start, stop
from fedsuite.flower.forks import SERVER_NAME

HERE = Path(__file__).resolve().parents[1]
RUN = ("run", "fedavg", "num-rounds=1", "--engine", "ray", "--name", "one")
POLL_SECONDS = 0.05
COMMAND, SUPERLINK, SUPEREXEC = "the command", "SuperLink", "SuperExec"
SUBMIT, SIMULATION, SERVICES, WORKER = "flwr run", "simulation", "Ray's services", "Ray's workers"
BEGUN, TRAINED, ENDED = "round 0", "round 1", "end"
SERVER = "forks' server"
PROGRAMS = {
    "flower-superlink": SUPERLINK,
    "flower-superexec": SUPEREXEC,
    SERVER_NAME: SERVER,
    "flwr": SUBMIT,
    "flwr-simulation": SIMULATION,
    "default_worker.py": WORKER,
    "setup_worker.py": WORKER,
}
RAYS = (
    "raylet",
    "gcs_server",
    "monitor.py",
    "dashboard.py",
    "log_monitor.py",
    "agent.py",
    "main.py",
)
WORDS, NAME_LETTERS = 6, 15  # what is looked at of a command, and what Linux keeps of a name
# A phase lasts until the first process of a program appears, or until a line is recorded.
PHASES = {
    SUBMIT: ("the command checks the run, the SuperLink starts", "ours, Flower's"),
    SIMULATION: ("`flwr run` packs and submits the app, SuperExec takes it", "Flower's"),
    SERVICES: ("the simulation imports Flower and Ray", "Flower's"),
    WORKER: ("Ray starts", "Ray's"),
    BEGUN: (
        "workers import Flower, PyTorch and the app, and meet the server",
        "Flower's, PyTorch's",
    ),
    TRAINED: ("the round", "ours"),
    ENDED: ("the end of all processes, the results", "ours"),
}


@dataclass
class TimeLine:
    """Seconds from the start to each event, and CPU seconds by program."""

    events: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    def phases(self) -> dict[str, float]:
        """Return how long each phase lasted."""
        times = [0.0, *(self.events[event] for event in PHASES)]
        return {event: times[i + 1] - times[i] for i, event in enumerate(PHASES)}


def program_of(words: Sequence[str], name: str = "") -> str:
    """Tell which program a process runs, by its name or first words; "" if not known yet.

    A fork has the words of the service, and a name of its own.
    """
    for program, what in PROGRAMS.items():
        if name == program[:NAME_LETTERS]:
            return what
    if words and words[0].startswith("ray::"):
        return WORKER
    names = [Path(word).name for word in words[:WORDS]]
    if "gcs_server" in names[:1] or "raylet" in names[:1]:
        return SERVICES
    programs = (PROGRAMS.get(name) or (SERVICES if name in RAYS else "") for name in names)
    return next(filter(None, programs), "")


def watch(checkout: Path, folder: Path) -> TimeLine:
    """Run one round on Ray in a folder, with a checkout's code, and watch it."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "FLWR_TELEMETRY_ENABLED": "0"}
    history = folder / "runs" / "one" / "history.jsonl"
    line, known, used = TimeLine(), dict[int, str](), dict[int, float]()
    began = time.monotonic()
    with (folder / "output").open("wb") as output:
        command = [sys.executable, "-P", "-m", "fedsuite.cli", *RUN]
        child = start(command, environment, cwd=folder, output=output)
    try:
        root = psutil.Process(child.pid)
        while child.poll() is None:
            _note(root, known, used)
            rounds = history.read_bytes().count(b"\n") if history.exists() else 0
            seen = [*known.values(), *(BEGUN, TRAINED)[:rounds]]
            for event in filter(None, seen):
                line.events.setdefault(event, time.monotonic() - began)
            time.sleep(POLL_SECONDS)
    finally:
        stop(child)
    line.events[ENDED] = time.monotonic() - began
    if child.returncode:
        sys.exit((folder / "output").read_text(errors="replace"))
    for pid, seconds in used.items():
        program = known[pid] or COMMAND
        line.cpu[program] = line.cpu.get(program, 0.0) + seconds
    return line


def _note(root: psutil.Process, known: dict[int, str], used: dict[int, float]) -> None:
    """Note which programs run, and what CPU time they have used so far."""
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return
    for process in family:
        try:
            if process != root and not known.get(process.pid):
                known[process.pid] = program_of(process.cmdline(), process.name())
            known.setdefault(process.pid, "")
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
        except psutil.Error:
            continue


def report(lines: Mapping[str, Sequence[TimeLine]]) -> str:
    """Return the medians of some checkouts' time lines as two tables."""
    phases = {name: _medians([line.phases() for line in some]) for name, some in lines.items()}
    cpu = {name: _medians([line.cpu for line in some]) for name, some in lines.items()}
    rows = [
        [what, *(f"{phases[name].get(event, 0.0):.1f}" for name in lines), whose]
        for event, (what, whose) in PHASES.items()
    ]
    rows.append(["total", *(f"{sum(phases[name].values()):.1f}" for name in lines), ""])
    programs = (COMMAND, SUPERLINK, SERVER, SUPEREXEC, SUBMIT, SIMULATION, SERVICES, WORKER)
    used = [[p, *(f"{cpu[name].get(p, 0.0):.1f}" for name in lines)] for p in programs]
    used.append(["total", *(f"{sum(cpu[name].values()):.1f}" for name in lines)])
    return "\n\n".join(
        [
            table(["phase", *(f"{name}, s" for name in lines), "whose"], rows),
            table(["program", *(f"{name}, CPU s" for name in lines)], used),
        ]
    )


def _medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = {key: None for sample in samples for key in sample}
    return {key: statistics.median(s.get(key, 0.0) for s in samples) for key in keys}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each checkout")
    parser.add_argument("--against", type=Path, help="another checkout, to take turns with")
    options = parser.parse_args()
    checkouts = {"before": options.against.resolve()} if options.against else {}
    checkouts["after" if checkouts else "now"] = HERE
    lines: dict[str, list[TimeLine]] = {name: [] for name in checkouts}
    before = os.getloadavg()
    for _ in range(options.repeats):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as folder:
                lines[name].append(watch(checkout, Path(folder)))
    loads = ", ".join(f"{load:.1f}" for load in (before[0], os.getloadavg()[0]))
    print(f"{report(lines)}\n\nLoad average before and after: {loads}.")


if __name__ == "__main__":
    main()
