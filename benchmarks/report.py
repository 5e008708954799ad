"""The numbers of the report and their Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.suite_runs import Training

REFERENCE, PLAIN_FLOWER, OURS = "b", "c", "d"
LABELS = {
    "a": "(a) plain PyTorch, one process, two threads",
    "b": "(b) plain PyTorch, two processes",
    "c": "(c) plain Flower app, a SuperNode per client",
    "d": "(d) fedsuite, ray engine, two nodes",
    "e": "(d) fedsuite, inline engine",
}
MEGABYTE = 1e6
STEP_TARGETS = {"taco": 1.03, "fedprox": 1.05}


@dataclass(frozen=True)
class RoundTime:
    """One round: its seconds and score, when it started and when the next one could."""

    round: int
    seconds: float
    accuracy: float
    loss: float
    went: float
    back: float | None = None
    evaluate_seconds: float = 0.0
    clients: int = 0


@dataclass(frozen=True)
class Trial:
    """One run of one variant."""

    started: float
    ready: float
    ended: float
    peak_bytes: int
    rounds: Sequence[RoundTime] = ()
    training: Sequence[Training] = ()
    error: str = ""
    machine_bytes: int = 0
    drift_bytes: int = 0  # change of other processes' memory meanwhile

    @property
    def startup(self) -> float:
        """Process start to the first round's possible start."""
        return self.ready - self.started

    @property
    def teardown(self) -> float:
        """The last round's end to the end of the process."""
        return self.ended - self.rounds[-1].went - self.rounds[-1].seconds

    @property
    def steady(self) -> list[float]:
        """Seconds of the rounds after the first."""
        return [row.seconds for row in self.rounds[1:]]

    @property
    def between(self) -> list[float]:
        """Seconds after each steady round before the next one could start."""
        return [row.back - row.went - row.seconds for row in self.rounds[1:] if row.back]


@dataclass(frozen=True)
class StepCost:
    """What one local step of an algorithm's client costs."""

    algo: str
    seconds: float = 0.0
    ratio: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)
    error: str = ""


@dataclass(frozen=True)
class Targets:
    """What is asked of the suite, on Ray; 0 where nothing is."""

    of_plain_loop: float = 0.0
    ahead_of_flower: float = 0.0
    replies: int = 0
    machine_gigabytes: float = 0.0
    beside_training: float = 0.0


@dataclass(frozen=True)
class WorkloadReport:
    """All that was measured of one workload."""

    name: str
    title: str
    data: str
    targets: Targets = Targets()
    trials: Mapping[str, Trial] = field(default_factory=dict)
    steps: Sequence[StepCost] = ()


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def ratios(trials: Mapping[str, Trial], variant: str, to: str) -> list[float]:
    """Return how many times the other's round a variant's takes, turn by turn."""
    own, other = trials.get(variant), trials.get(to)
    if own is None or other is None or own.error or other.error:
        return []
    return [a / b for a, b in zip(own.steady, other.steady, strict=True)]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table, the first column to the left and numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rounds_table(report: WorkloadReport) -> str:
    """Write a workload's main table."""
    header = ["variant", "median s/round", "quartiles", "x (b)", "start-up s", "first round s"]
    header += [
        "teardown s",
        "processes MB",
        "machine MB",
        "others MB",
        "final accuracy",
        "final loss",
    ]
    return table(header, [_row(report, variant) for variant in report.trials])


def _row(report: WorkloadReport, variant: str) -> list[str]:
    trial = report.trials[variant]
    if trial.error:
        return [LABELS[variant], "failed", *["-"] * 10]
    low, high = quartiles(trial.steady)
    found = ratios(report.trials, variant, REFERENCE)
    return [
        LABELS[variant],
        f"{statistics.median(trial.steady):.3f}",
        f"{low:.3f}-{high:.3f}",
        f"{statistics.median(found):.2f}" if found else "-",
        f"{trial.startup:.1f}",
        f"{trial.rounds[0].seconds:.1f}",
        f"{trial.teardown:.1f}",
        f"{trial.peak_bytes / MEGABYTE:,.0f}",
        f"{trial.machine_bytes / MEGABYTE:,.0f}",
        f"{trial.drift_bytes / MEGABYTE:,.0f}",
        f"{trial.rounds[-1].accuracy:.4f}",
        f"{trial.rounds[-1].loss:.4f}",
    ]


def breakdown_table(report: WorkloadReport) -> str:
    """Write where the suite's rounds spend their time: medians of the steady rounds."""
    header = ("engine", "s/round", "busiest node trains", "rest", "all clients train", "between")
    rows = [
        [LABELS[variant], *(f"{seconds:.3f}" for seconds in breakdown(trial))]
        for variant, trial in report.trials.items()
        if trial.training
    ]
    return table(header, rows) if rows else ""


def breakdown(trial: Trial) -> list[float]:
    """Return the medians of a round, its training, what is left, all training, and between."""
    parts = trial.training[1:]
    rests = [s - part.busiest_node for s, part in zip(trial.steady, parts, strict=True)]
    columns = [trial.steady, [part.busiest_node for part in parts], rests]
    columns += [[part.all_clients for part in parts], trial.between or [0.0]]
    return [statistics.median(column) for column in columns]


def beside_training(trial: Trial) -> float:
    """Return the median seconds of a round, and of what follows it, without its training."""
    _, _, rest, _, between = breakdown(trial)
    return rest + between


def evaluation_note(report: WorkloadReport) -> str:
    """Return what the test evaluation alone costs the plain loops."""
    parts = []
    for variant in ("a", "b"):
        trial = report.trials.get(variant)
        if trial is not None and not trial.error:
            seconds = statistics.median(row.evaluate_seconds for row in trial.rounds[1:])
            parts.append(f"{seconds:.3f} s in ({variant})")
    return f"Evaluation alone takes {' and '.join(parts)}." if parts else ""


def steps_table(costs: Sequence[StepCost]) -> str:
    """Write the cost of a local step of every algorithm."""
    rows = [
        [cost.algo, "failed", cost.error.replace("|", "/"), ""]
        if cost.error
        else [
            cost.algo,
            f"{cost.seconds * 1e3:.3f}",
            f"{cost.ratio:.2f}",
            f"{cost.spread[0]:.2f}-{cost.spread[1]:.2f}",
        ]
        for cost in costs
    ]
    return table(("algorithm", "ms/step", "x fedavg", "quartiles"), rows)


def failures(report: WorkloadReport) -> list[str]:
    """Quote what failed variants said."""
    return [
        f"{LABELS[variant]} failed.\n\n```\n{trial.error}\n```"
        for variant, trial in report.trials.items()
        if trial.error
    ]


def workload_sections(report: WorkloadReport) -> list[str]:
    """Write what a workload's rounds took."""
    sections = [f"## {report.name}: {report.title}", report.data, rounds_table(report)]
    sections += failures(report)
    if parts := breakdown_table(report):
        title = f"### {report.name}: where fedsuite's rounds spend their time"
        sections += [title, parts, BREAKDOWN_NOTE]
    return [*sections, evaluation_note(report)]


def steps_sections(report: WorkloadReport) -> list[str]:
    """Write what local steps took with a workload's model."""
    title = f"## Local step cost, {report.name}'s model"
    return [title, STEPS_NOTE, steps_table(report.steps)]


STEPS_NOTE = (
    "CPU time of one client's training in round 3 of a run, divided by its steps, so that what a "
    "method does once per round is included. Each algorithm takes turns with FedAvg; the ratio is "
    "the median over turns. FedRep's steps are those of its head and its body, more per round than "
    "the others'."
)

BREAKDOWN_NOTE = (
    "Median seconds. *Rest* is the round without the busiest node's training: evaluation, "
    "aggregation, messages, waiting. *Between* is the time from one round's end to the next one's "
    "start (record, checkpoint), which s/round does not hold."
)
