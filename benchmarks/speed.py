"""``make bench``: how fast the suite is, beside plain PyTorch and plain Flower, in one run.

All variants of a workload are alive at the same time and take turns, one round each; of W3 and W4
each has the machine to itself. Rounds are timed inside a variant, start-up, teardown and memory
from outside. Needs about 14 GB of memory.
"""

from __future__ import annotations

import argparse
import dataclasses
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

from benchmarks import fixed_cost, round_cost
from benchmarks.deployed import deployed_report
from benchmarks.job import open_job
from benchmarks.measure import available_memory
from benchmarks.report import (
    LABELS,
    OURS,
    PLAIN_FLOWER,
    StepCost,
    Trial,
    WorkloadReport,
    steps_sections,
    workload_sections,
)
from benchmarks.round_cost import Measured, Size, measured_round
from benchmarks.steps import step_costs
from benchmarks.suite_runs import NODES
from benchmarks.turns import take_turns
from benchmarks.verdicts import Verdict, of_steps, of_workload, verdict_table
from benchmarks.workloads import COST_RUNS, QUICK, WORKLOADS, Workload, export, provide

PROJECT = Path(__file__).resolve().parent.parent
MIRROR = PROJECT.parent / "shared" / "data"


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    rounds: int
    step_seconds: float
    steps: int
    repeats: int


FULL = Effort(rounds=10, step_seconds=4.0, steps=50, repeats=3)
SMOKE = Effort(rounds=3, step_seconds=0.0, steps=10, repeats=0)
PARTS = ("rounds", "steps", "fixed", "deployed", "model")


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
    usual = SMOKE if arguments.quick else FULL
    effort = dataclasses.replace(usual, rounds=arguments.rounds or usual.rounds)
    asked = arguments.workloads
    if asked is None:
        asked = QUICK if arguments.quick else list(WORKLOADS)
    notes = [f"load average before: {_load()}", f"available memory before: {_available()}"]
    reports = []
    for name in asked:
        workload = WORKLOADS[name].quick if arguments.quick else WORKLOADS[name]
        reports.append(_measure_workload(workload, arguments, effort, folder / name))
    verdicts, sections = _judge(reports)
    if "fixed" in arguments.parts and effort.repeats:
        _say("the fixed cost of a run")
        cost = fixed_cost.measure(effort.repeats)
        verdicts += cost.verdicts()
        sections += cost.sections()
    if "deployed" in arguments.parts and effort.repeats:
        _say("rounds on real SuperNodes")
        sections.append(deployed_report(repeats=1))
    if "model" in arguments.parts and effort.repeats:
        sections += ["## A model of a round's cost", COST_NOTE]
        sections.append(_cost_model(arguments, folder))
    notes += [f"load average after: {_load()}", _how(effort, arguments.quick)]
    lines = "\n".join(f"- {line}" for line in (*describe_machine(), *notes))
    head = ["# Speed", lines, "## Verdict", verdict_table(verdicts)]
    return "\n\n".join(filter(None, [*head, *sections])) + "\n"


def _judge(reports: Sequence[WorkloadReport]) -> tuple[list[Verdict], list[str]]:
    """Return the verdicts on workloads and their sections, those of local steps last."""
    timed = [report for report in reports if report.trials]
    stepped = [report for report in reports if report.steps]
    verdicts = [verdict for report in timed for verdict in of_workload(report)]
    verdicts += [verdict for report in stepped for verdict in of_steps(report.name, report.steps)]
    sections = [section for report in timed for section in workload_sections(report)]
    sections += [section for report in stepped for section in steps_sections(report)]
    return verdicts, sections


def _measure_workload(
    workload: Workload, arguments: argparse.Namespace, effort: Effort, folder: Path
) -> WorkloadReport:
    rounds = workload.rounds or effort.rounds
    steps: list[StepCost] = []
    with _provided(workload, arguments, folder) as (root, source):
        shape = export(workload, root, rounds, folder / "job")
        trials: dict[str, Trial] = {}
        idle = 0.0
        variants = [v for v in workload.variants if v in arguments.variants]
        if "rounds" in arguments.parts:
            for group in ["".join(variants)] if workload.by_turns else variants:
                found, idle = _run(workload, group, root, rounds, folder)
                trials |= found
        if "steps" in arguments.parts and workload.has_step_costs:
            _say(f"{workload.name}: local step cost")
            steps = step_costs(workload, root, folder / "steps", effort.steps, effort.step_seconds)
    data = f"{source[:1].upper()}{source[1:]}: {shape}."
    if len(variants) > 1 and workload.by_turns:
        data += (
            f" While they wait for their turns, all variants together take {idle:.0%} of a core."
        )
    title = f"{workload.title}, {rounds} rounds"
    return WorkloadReport(workload.name, title, data, workload.targets, trials, steps)


def _cost_model(arguments: argparse.Namespace, folder: Path) -> str:
    """Measure a round at several sizes; return the model's constants and how well it fits."""
    found: dict[str, list[Measured]] = {}
    for workload in COST_RUNS:
        own = folder / f"{workload.name}-{workload.num_clients}"
        with _provided(workload, arguments, own) as (root, _):
            export(workload, root, workload.rounds, own / "job")
            trials, _ = _run(workload, OURS, root, workload.rounds, own)
            model = open_job(own / "job")[0].build_model()
        if trials[OURS].error:
            return trials[OURS].error
        size = Size(sum(p.numel() for p in model.parameters()), workload.num_clients, NODES["ray"])
        found.setdefault(workload.model, []).append(measured_round(trials[OURS], size))
    small = {model: runs[:-1] for model, runs in found.items()}
    return round_cost.report(small, {model: runs[-1:] for model, runs in found.items()})


def _run(
    workload: Workload, variants: str, root: Path, rounds: int, folder: Path
) -> tuple[dict[str, Trial], float]:
    """Run variants in turn, or say why they do not fit."""
    free = available_memory() / 1e9
    if variants == PLAIN_FLOWER and free < workload.flower_gigabytes:
        needs = f"It needs about {workload.flower_gigabytes:g} GB, and {free:.1f} GB are available."
        return {PLAIN_FLOWER: Trial(0.0, 0.0, 0.0, 0, error=needs)}, 0.0
    settings, variables = workload.settings(root, rounds), _variables(folder.parent)

    def say(text: str) -> None:
        _say(f"{workload.name}: {text}")

    return take_turns(variants, settings, folder / "job", folder, variables, say)


@contextmanager
def _provided(
    workload: Workload, arguments: argparse.Namespace, folder: Path
) -> Iterator[tuple[Path, str]]:
    """Give a workload its data, and a folder for the time it is measured."""
    folder.mkdir()
    mirror = arguments.data_root.expanduser().absolute()
    root, source = provide(workload, mirror, folder / "data", arguments.quick)
    with _cache(None if root == mirror else folder / "cache"):
        yield root, source
    shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
        "memory: *processes* is private memory of the whole process tree, and shared memory once; "
        "*machine* is by how much less memory is available than before the variant's start "
        "(MemAvailable, every 0.2 s), peaks both; *others* is by how much the private memory of "
        "other processes changed meanwhile, which should be next to nothing",
    ]


def _how(effort: Effort, quick: bool) -> str:
    text = (
        f"{effort.rounds} rounds, the variants taking turns round by round; medians are without "
        "the first round; x (b) is the median of the ratios of rounds of the same turn; (c)'s "
        "first round holds the start of Ray, fedsuite's start-up does"
    )
    return text + (". **Quick run with fewer rows: not a measurement.**" if quick else "")


COST_NOTE = (
    "fedsuite on Ray, one local step, two workers, few test rows; seconds are medians, with what "
    "follows a round (record, checkpoint). Constants are fitted to the small runs of each model, "
    "and the largest is predicted with them."
)


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _available() -> str:
    return f"{available_memory() / 1e9:.1f} GB"


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
    parser.add_argument("--rounds", type=_at_least_two, help="rounds of W1 and W2 (10)")
    parser.add_argument("--data-root", type=Path, default=MIRROR, help=f"parquet ({MIRROR})")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, help="by default all; or none")
    parser.add_argument("--variants", default="".join(LABELS), help="some of abcde, e = (d) inline")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    return parser


def _at_least_two(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 2")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
