"""``make faults``: inject faults into real processes and see what becomes of a run.

Each fault has a federation of its own (SuperLink and SuperNodes over gRPC with TLS and keys) or a
simulation of its own (SuperLink and Ray workers), one run on it, and a row in the table: how many
rounds were completed, which of them the disturbed node missed, whether it took part in the last
one, and the final accuracy compared with that of an undisturbed run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import table
from faults.catalogue import FAULTS
from faults.run import TARGET, disturbed_run
from faults.watched import simulated_run
from fedsuite.core.files import read_document, read_lines
from fedsuite.records.folder import RunFolder

ALGORITHM = "scaffold"
ROUNDS = 6
SEED = 1
TIME_LIMIT = 180.0
LEAST_TIME_LIMIT = 40.0
HEADER = (
    "fault",
    "rounds",
    "rounds missed",
    "in the last round",
    "accuracy %",
    "difference",
    "seconds",
)


@dataclass(frozen=True)
class FaultResult:
    """The result of a disturbed run."""

    title: str
    rounds: int
    missed: list[int]
    accuracy: float | None
    seconds: float
    notes: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Inject the faults and print the table."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("faults", nargs="*", help=f"some of {', '.join(FAULTS)} (default: all)")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="round-timeout of 'slow' (default: twice the usual time of a round, at least 40)",
    )
    arguments = parser.parse_args(argv)
    chosen, limit = arguments.faults or list(FAULTS), arguments.time_limit
    if unknown := sorted(set(chosen) - set(FAULTS)):
        parser.error(f"unknown faults {', '.join(unknown)}. Choices: {', '.join(FAULTS)}.")
    results: list[FaultResult] = []
    for name in ["none", *(name for name in chosen if name != "none")]:
        usual = results[0].seconds / ROUNDS if results else 0.0
        slow_limit = limit or max(LEAST_TIME_LIMIT, 2 * usual)
        time_limit = slow_limit if name == "slow" else TIME_LIMIT
        results.append(inject_in_scratch(name, time_limit))
        print(f"{results[-1]}", file=sys.stderr, flush=True)
    print(report(results))
    return 1 if any(result.rounds < ROUNDS for result in results) else 0


def inject_in_scratch(name: str, time_limit: float) -> FaultResult:
    """Run one experiment in a folder that is kept only if the run lacks rounds or fails."""
    folder = Path(tempfile.mkdtemp(prefix="fedsuite-faults-"))
    result = None
    try:
        result = inject(name, folder, time_limit)
        return result
    finally:
        if result is not None and result.rounds == ROUNDS:
            shutil.rmtree(folder)
        else:
            print(f"{name}: logs and records are kept in {folder}", file=sys.stderr, flush=True)


def inject(name: str, folder: Path, time_limit: float) -> FaultResult:
    """Run one experiment with one fault."""
    fault, started = FAULTS[name], time.monotonic()
    needs: dict[str, Any] = {"waiting": fault.waiting, "own_network": fault.own_network}
    needs |= {"planner": fault.planner, "within": fault.within}
    with simulated_run(folder) if fault.simulated else disturbed_run(folder, SEED, **needs) as run:
        settings = [f"num-rounds={ROUNDS}", f"round-timeout={time_limit:.0f}", f"seed={SEED}"]
        run.submit("run", ALGORITHM, *settings, *run.settings, "--name", "run")
        fault.inject(run)
        run.await_end()
        summary = read_document(RunFolder(run.folder).summary_file)
        trained = {
            row["round"]
            for row in read_lines(RunFolder(run.folder).clients_file)
            if (row["phase"], row["client"], row["status"]) == ("train", TARGET, "ok")
        }
        notes = [row["note"] for row in run.rounds() if row.get("note")]
    return FaultResult(
        fault.title,
        int(summary.get("rounds", 0)),
        sorted(set(range(1, ROUNDS + 1)) - trained),
        summary.get("final_accuracy"),
        time.monotonic() - started,
        "; ".join(notes),
    )


def report(results: Sequence[FaultResult]) -> str:
    """Return the results as a Markdown table; the first one is the undisturbed run."""
    return table(HEADER, [_row(result, results[0].accuracy) for result in results])


def _row(result: FaultResult, usual: float | None) -> list[str]:
    accuracy = difference = "-"
    if result.accuracy is not None:
        accuracy = f"{100 * result.accuracy:.1f}"
        difference = "-" if usual is None else f"{100 * (result.accuracy - usual):+.1f}"
    return [
        result.title,
        f"{result.rounds} of {ROUNDS}",
        ", ".join(map(str, result.missed)) or "none",
        "no" if ROUNDS in result.missed else "yes",
        accuracy,
        difference,
        f"{result.seconds:.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
