"""The numbers of the report and their Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.suite_runs import Breakdown

REFERENCE, PLAIN_FLOWER, OURS = "b", "c", "d"
LABELS = {
    "a": "(a) plain PyTorch, one process, two threads",
    "b": "(b) plain PyTorch, two processes",
    "c": "(c) plain Flower app, a SuperNode per client",
    "d": "(d) fedsuite, ray engine, two nodes",
    "e": "(d) fedsuite, inline engine",
}
MEGABYTE = 1e6


@dataclass(frozen=True)
class RoundTime:
    """One round: how long it took, when it ended, how good the model was then."""

    round: int
    seconds: float
    ended: float
    accuracy: float
    evaluate_seconds: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One run of one variant."""

    started: float
    ended: float
    peak_bytes: int
    rounds: Sequence[RoundTime] = ()
    breakdown: Breakdown | None = None
    error: str = ""

    @property
    def startup(self) -> float:
        """Process start to the start of the first round."""
        return self.rounds[0].ended - self.rounds[0].seconds - self.started

    @property
    def teardown(self) -> float:
        """The last round's end to the end of the process."""
        return self.ended - self.rounds[-1].ended

    @property
    def steady(self) -> list[float]:
        """Seconds of the rounds after the first."""
        return [row.seconds for row in self.rounds[1:]]


@dataclass(frozen=True)
class StepCost:
    """What one local step of an algorithm's client costs."""

    algo: str
    seconds: float = 0.0
    ratio: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class WorkloadReport:
    """All that was measured of one workload; trials by variant, in order of repeats."""

    name: str
    title: str
    data: str
    target: float
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    steps: Sequence[StepCost] = ()


def steady_rounds(trials: Iterable[Trial]) -> list[float]:
    """Pool the steady rounds of all good trials."""
    return [seconds for trial in trials if not trial.error for seconds in trial.steady]


def steady_state(trials: Iterable[Trial]) -> float | None:
    """Return the median steady round, None if there is none."""
    rounds = steady_rounds(trials)
    return statistics.median(rounds) if rounds else None


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def ratio(trials: Mapping[str, Sequence[Trial]], variant: str, to: str) -> float | None:
    """Return how many times the other's median round a variant's takes."""
    own, other = steady_state(trials.get(variant, ())), steady_state(trials.get(to, ()))
    return None if own is None or not other else own / other


def ratios_by_repeat(
    trials: Mapping[str, Sequence[Trial]], variant: str, to: str
) -> list[float | None]:
    """Return the ratio within each repeat, whose runs were neighbours in time."""
    pairs = zip(trials.get(variant, ()), trials.get(to, ()), strict=False)
    return [ratio({variant: [own], to: [other]}, variant, to) for own, other in pairs]


def verdicts(report: WorkloadReport) -> list[str]:
    """Say for each target whether it is met."""
    lines = []
    for other, target, exact in ((REFERENCE, report.target, True), (PLAIN_FLOWER, 1.0, False)):
        value = ratio(report.trials, OURS, other)
        name = LABELS[other].split(",")[0]
        wanted = f"at most {target:.2f}x" if exact else "less than 1x"
        if value is None:
            lines.append(f"- {report.name}, fedsuite on ray against {name}: **not measured**")
            continue
        met = value <= target if exact else value < target
        each = ", ".join(_number(r) for r in ratios_by_repeat(report.trials, OURS, other))
        lines.append(
            f"- {report.name}, fedsuite on ray against {name}: {value:.2f}x (by repeat: {each}), "
            f"target {wanted}: **{'met' if met else 'missed'}**"
        )
    return lines


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table, the first column to the left and numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rounds_table(report: WorkloadReport) -> str:
    """Write a workload's main table."""
    header = ["variant", "median s/round", "quartiles", "x (b)", "start-up s", "first round s"]
    header += ["teardown s", "peak MB", "final accuracy"]
    return table(header, [_row(report, variant) for variant in report.trials])


def _row(report: WorkloadReport, variant: str) -> list[str]:
    good = [trial for trial in report.trials[variant] if not trial.error]
    median = steady_state(good)
    if median is None:
        return [LABELS[variant], "failed", *["-"] * 7]
    low, high = quartiles(steady_rounds(good))
    return [
        LABELS[variant],
        _seconds(median),
        f"{_seconds(low)}-{_seconds(high)}",
        _number(ratio(report.trials, variant, REFERENCE)),
        _middle(good, lambda trial: trial.startup),
        _middle(good, lambda trial: trial.rounds[0].seconds),
        _middle(good, lambda trial: trial.teardown),
        f"{max(trial.peak_bytes for trial in good) / MEGABYTE:,.0f}",
        f"{statistics.median(trial.rounds[-1].accuracy for trial in good):.4f}",
    ]


def breakdown_table(report: WorkloadReport) -> str:
    """Write where the suite's rounds spend their time."""
    rows = []
    for variant, trials in report.trials.items():
        parts = [trial.breakdown for trial in trials if trial.breakdown is not None]
        if parts:
            columns = ("wall", "busiest_node", "rest", "all_clients", "between_rounds")
            medians = [statistics.median(getattr(part, name) for part in parts) for name in columns]
            rows.append([LABELS[variant], *map(_seconds, medians)])
    header = ("engine", "s/round", "busiest node trains", "rest", "all clients train", "between")
    return table(header, rows)


def evaluation_note(report: WorkloadReport) -> str:
    """Say what the test evaluation alone costs the plain loops."""
    parts = []
    for variant in ("a", "b"):
        rows = [row for t in report.trials.get(variant, ()) for row in t.rounds[1:]]
        if rows:
            seconds = statistics.median(row.evaluate_seconds for row in rows)
            parts.append(f"{_seconds(seconds)} s in ({variant})")
    return f"Evaluation alone takes {' and '.join(parts)}." if parts else ""


def steps_table(costs: Sequence[StepCost]) -> str:
    """Write the cost of a local step of every algorithm."""
    rows = [
        [cost.algo, "failed", cost.error.replace("|", "/")]
        if cost.error
        else [cost.algo, f"{cost.seconds * 1e3:.3f}", f"{cost.ratio:.2f}"]
        for cost in costs
    ]
    return table(("algorithm", "ms/step", "x fedavg"), rows)


def failures(report: WorkloadReport) -> list[str]:
    """Quote what failed trials said."""
    return [
        f"{LABELS[variant]} failed:\n\n```\n{trial.error}\n```"
        for variant, trials in report.trials.items()
        for trial in trials
        if trial.error
    ]


def markdown(
    machine: Sequence[str], notes: Sequence[str], reports: Sequence[WorkloadReport]
) -> str:
    """Write the whole report."""
    sections = ["# Speed", "\n".join(f"- {line}" for line in (*machine, *notes))]
    timed = [report for report in reports if report.trials]
    if timed:
        lines = [line for report in timed for line in verdicts(report)]
        sections += ["## Verdict", "\n".join(lines)]
    for report in timed:
        sections += [f"## {report.name}: {report.title}", report.data, rounds_table(report)]
        sections += [*failures(report), f"### {report.name}: where a round of ours goes"]
        sections += [BREAKDOWN_NOTE, breakdown_table(report), evaluation_note(report)]
    for report in reports:
        if report.steps:
            sections += [f"## Local step cost, {report.name}'s model", steps_table(report.steps)]
    return "\n\n".join(section for section in sections if section) + "\n"


BREAKDOWN_NOTE = (
    "Median seconds. *Rest* is the round without the busiest node's training: evaluation, "
    "aggregation, messages, waiting. *Between* is the time from one round's end to the next one's "
    "start (record, checkpoint), which s/round does not hold."
)


def _middle(trials: Sequence[Trial], value: Callable[[Trial], float]) -> str:
    return f"{statistics.median(value(trial) for trial in trials):.1f}"


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
