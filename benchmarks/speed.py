"""``make bench``: how fast the suite is, beside plain PyTorch and plain Flower, in one run.

Each repeat runs every variant once, the next repeat in reverse order, so that a machine's moods
hit all of them alike. A variant is a command of its own; rounds are timed inside it, everything
else from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks import suite_runs
from benchmarks.measure import Measured, measure
from benchmarks.report import LABELS, RoundTime, StepCost, Trial, WorkloadReport, markdown
from benchmarks.steps import step_costs
from benchmarks.workloads import WORKLOADS, Workload, export, provide

PROJECT = Path(__file__).resolve().parent.parent
MIRROR = PROJECT.parent / "shared" / "data"
ORDER = ("a", "b", "d", "c", "e")
ENGINES = {"d": "ray", "e": "inline"}
BASELINES = {"a": "one-process", "b": "two-processes"}
TIMEOUT_SECONDS = 3600.0
LOG_LINES = 30


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    rounds: int
    repeats: int
    step_repeats: int
    steps: int


FULL = Effort(rounds=10, repeats=3, step_repeats=15, steps=50)
QUICK = Effort(rounds=3, repeats=1, step_repeats=3, steps=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the report and write it where asked."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="fsb-", ignore_cleanup_errors=True) as folder:
        report = benchmark(arguments, Path(folder))
    print(report)
    if arguments.output:
        arguments.output.write_text(report)
    return 0


def benchmark(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the report of everything asked for."""
    usual = QUICK if arguments.quick else FULL
    effort = Effort(
        arguments.rounds or usual.rounds,
        arguments.repeats or usual.repeats,
        usual.step_repeats,
        usual.steps,
    )
    notes = [f"load average before: {_load()}"]
    reports = []
    for name in arguments.workloads:
        workload = WORKLOADS[name].quick if arguments.quick else WORKLOADS[name]
        place = folder / name
        place.mkdir()
        reports.append(_measure_workload(workload, arguments, effort, place))
        shutil.rmtree(place, ignore_errors=True)
    notes += [f"load average after: {_load()}", _how(effort, arguments.quick)]
    return markdown(describe_machine(), notes, reports)


def _measure_workload(
    workload: Workload, arguments: argparse.Namespace, effort: Effort, folder: Path
) -> WorkloadReport:
    mirror = arguments.data_root.expanduser().absolute()
    root, source = provide(workload, mirror, folder / "data", arguments.quick)
    if root != mirror:
        os.environ["FEDSUITE_CACHE"] = str(folder / "cache")
    shape = export(workload, root, effort.rounds, folder / "job")
    trials: dict[str, list[Trial]] = {key: [] for key in LABELS if key in arguments.variants}
    for repeat in range(effort.repeats):
        for variant in ORDER[:: 1 if repeat % 2 == 0 else -1]:
            if variant in trials:
                _say(f"{workload.name}, repeat {repeat + 1} of {effort.repeats}: {LABELS[variant]}")
                place = folder / f"{variant}{repeat}"
                trials[variant].append(run_variant(variant, workload, root, effort.rounds, place))
    steps: list[StepCost] = []
    if not arguments.no_steps:
        _say(f"{workload.name}: local step cost")
        place = folder / "steps"
        steps = step_costs(workload, root, place, effort.steps, effort.step_repeats)
    title = f"{workload.title}, {effort.rounds} rounds"
    data = f"{source[:1].upper()}{source[1:]}: {shape}."
    return WorkloadReport(workload.name, title, data, workload.target, trials, steps)


def run_variant(variant: str, workload: Workload, root: Path, rounds: int, folder: Path) -> Trial:
    """Run one variant once, in a folder of its own that is removed afterwards."""
    folder.mkdir()
    job, output, log = folder.parent / "job", folder / "rounds.json", folder / "log"
    variables = _variables(folder)
    if variant in ENGINES:
        settings = workload.settings(root, rounds)
        trial = _run_suite(ENGINES[variant], settings, folder / "run", log, variables)
    else:
        how = ["baseline", BASELINES[variant]] if variant in BASELINES else ["plain_flower"]
        command = [sys.executable, "-m", f"benchmarks.{how[0]}", *how[1:], str(job), str(output)]
        measured = measure(command, log, variables, TIMEOUT_SECONDS)
        rows = json.loads(output.read_text()) if output.exists() else []
        trial = _trial(measured, rows, rounds, log)
    shutil.rmtree(folder, ignore_errors=True)
    return trial


def _run_suite(
    engine: str, settings: dict[str, str], run: Path, log: Path, variables: dict[str, str]
) -> Trial:
    watch = suite_runs.HistoryWatch(run)
    command = suite_runs.command(engine, settings, run)
    measured = measure(command, log, variables, TIMEOUT_SECONDS, watch.look)
    rows = watch.rounds()
    expected = int(settings["num-rounds"])
    parts = None
    if len(rows) == expected:
        parts = suite_runs.breakdown(run, watch.seen, suite_runs.NODES[engine])
    return _trial(measured, rows, expected, log, parts)


def _trial(
    measured: Measured,
    rows: Sequence[dict[str, float]],
    expected: int,
    log: Path,
    breakdown: suite_runs.Breakdown | None = None,
) -> Trial:
    times = [
        RoundTime(
            int(row["round"]),
            row["seconds"],
            row["ended"],
            row["accuracy"],
            row.get("evaluate_seconds", 0.0),
        )
        for row in rows
    ]
    error = ""
    if measured.status != 0 or len(times) != expected:
        tail = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        error = "\n".join([f"exit status {measured.status}, {len(times)} rounds", *tail])
        _say(error)
    return Trial(measured.started, measured.ended, measured.peak_bytes, times, breakdown, error)


def describe_machine() -> list[str]:
    """Say where this was measured."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "flwr", "ray", "numpy"))
    return [
        f"{_cpu_model()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}, {versions}",
        "threads: (a) 2; (b) 1 in each worker; (c) and fedsuite 1 in each client; to evaluate, "
        "(a) and (b) take 1 or 2, whichever is quicker, (c) and fedsuite what they take by default",
        "peak memory: private memory of the whole process tree, shared memory once",
    ]


def _how(effort: Effort, quick: bool) -> str:
    text = (
        f"{effort.repeats} x {effort.rounds} rounds; median s/round is over all rounds but the "
        "first of each run; (c)'s first round holds the start of Ray, the others' start-up does"
    )
    return text + (". **Quick run with fewer rows: not a measurement.**" if quick else "")


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _load() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def _variables(folder: Path) -> dict[str, str]:
    """Let children find the project, and keep all they write temporarily in our own folder."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(folder.parent.parent),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds and rows: a smoke run")
    parser.add_argument("--rounds", type=_at_least_two, help="rounds of each run (10)")
    parser.add_argument("--repeats", type=int, help="runs of each variant (3)")
    parser.add_argument("--data-root", type=Path, default=MIRROR, help=f"parquet ({MIRROR})")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--variants", default="".join(LABELS), help="some of abcde, e = (d) inline")
    parser.add_argument("--no-steps", action="store_true", help="leave the step costs out")
    return parser


def _at_least_two(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 2")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
