"""``make bench``: how fast the suite is, beside plain PyTorch and plain Flower, in one run.

All variants of a workload are alive at the same time and take turns, one round each; rounds are
timed inside a variant, start-up, teardown and memory from outside. Needs about 10 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from benchmarks.report import LABELS, StepCost, Trial, WorkloadReport, markdown
from benchmarks.steps import step_costs
from benchmarks.turns import take_turns
from benchmarks.workloads import WORKLOADS, Workload, export, provide

PROJECT = Path(__file__).resolve().parent.parent
MIRROR = PROJECT.parent / "shared" / "data"


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    rounds: int
    step_seconds: float
    steps: int


FULL = Effort(rounds=16, step_seconds=8.0, steps=50)
QUICK = Effort(rounds=3, step_seconds=0.0, steps=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the report and write it where asked."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="fsb-", ignore_cleanup_errors=True) as folder:
        report = benchmark(arguments, Path(folder))
    print(report)
    if arguments.output:
        arguments.output.write_text(report)
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit on the first signal; a second one must not interrupt the ending of what we started."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def benchmark(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the report of everything asked for."""
    usual = QUICK if arguments.quick else FULL
    effort = Effort(arguments.rounds or usual.rounds, usual.step_seconds, usual.steps)
    notes = [f"load average before: {_load()}"]
    reports = []
    for name in arguments.workloads:
        workload = WORKLOADS[name].quick if arguments.quick else WORKLOADS[name]
        own = folder / name
        own.mkdir()
        reports.append(_measure_workload(workload, arguments, effort, own))
        shutil.rmtree(own, ignore_errors=True)
    notes += [f"load average after: {_load()}", _how(effort, arguments.quick)]
    return markdown(describe_machine(), notes, reports)


def _measure_workload(
    workload: Workload, arguments: argparse.Namespace, effort: Effort, folder: Path
) -> WorkloadReport:
    mirror = arguments.data_root.expanduser().absolute()
    root, source = provide(workload, mirror, folder / "data", arguments.quick)
    job, settings = folder / "job", workload.settings(root, effort.rounds)

    def say(text: str) -> None:
        print(f"{workload.name}: {text}", file=sys.stderr, flush=True)

    trials: dict[str, Trial] = {}
    idle = 0.0
    steps: list[StepCost] = []
    with _cache(None if root == mirror else folder / "cache"):
        shape = export(workload, root, effort.rounds, job)
        if arguments.variants:
            variables = _variables(folder.parent)
            trials, idle = take_turns(arguments.variants, settings, job, folder, variables, say)
        if not arguments.no_steps:
            say("local step cost")
            steps = step_costs(workload, root, folder / "steps", effort.steps, effort.step_seconds)
    title = f"{workload.title}, {effort.rounds} rounds"
    data = (
        f"{source[:1].upper()}{source[1:]}: {shape}. While they wait for their turns, all variants "
        f"together take {idle:.0%} of one core."
    )
    return WorkloadReport(workload.name, title, data, workload.target, trials, steps)


@contextmanager
def _cache(folder: Path | None) -> Iterator[None]:
    """Keep arrays made of temporary data out of the user's cache."""
    before = os.environ.get("FEDSUITE_CACHE")
    if folder is not None:
        os.environ["FEDSUITE_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("FEDSUITE_CACHE", None)
        if before is not None:
            os.environ["FEDSUITE_CACHE"] = before


def describe_machine() -> list[str]:
    """Return where this was measured."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "flwr", "ray", "numpy"))
    return [
        f"{_cpu_model()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}, {versions}",
        "threads: (a) 2; (b) 1 in each worker; (c) and fedsuite 1 in each client; to evaluate, "
        "(a) and (b) take 1 or 2, whichever is quicker, (c) and fedsuite what they take by default",
        "images: (a), (b) and fedsuite hold them channels-last; (c)'s DataLoader stacks each batch "
        "anew as contiguous NCHW, and that slower layout is part of what (c) costs",
        "peak memory: private memory of the whole process tree, shared memory once",
    ]


def _how(effort: Effort, quick: bool) -> str:
    text = (
        f"{effort.rounds} rounds, the variants taking turns round by round; medians are without "
        "the first round; x (b) is the median of the ratios of rounds of the same turn; (c)'s "
        "first round holds the start of Ray, fedsuite's start-up does"
    )
    return text + (". **Quick run with fewer rows: not a measurement.**" if quick else "")


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _load() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def _variables(temporary: Path) -> dict[str, str]:
    """Let children find the project, and keep all they write temporarily in our own folder."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(temporary),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds and rows: a smoke run")
    parser.add_argument("--rounds", type=_at_least_two, help="rounds of each variant (16)")
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
