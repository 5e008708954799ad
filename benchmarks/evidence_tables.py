"""Tables of ``docs/evidence`` from the runs of ``benchmarks.evidence``.

``python -m benchmarks.evidence_tables --results-dir DIR`` prints one Markdown section per block.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence import BLOCKS, KAPPAS, LAMBDAS
from benchmarks.report import table
from fedsuite.core.files import read_document, read_lines
from fedsuite.records.folder import RunFolder
from tasks.partitions import group_of

Summary = Mapping[str, Any]
Read = Callable[[Summary], float | None]
GROUPS = ("A", "B", "C", "freeloaders")


class Runs:
    """The finished runs of a block."""

    def __init__(self, results: Path, block: str) -> None:
        self.block, self.results = block, results
        self.seeds = BLOCKS[block].seeds

    def folders(self, cell: str) -> list[Path]:
        """Return the folders of a cell, one per seed."""
        return [self.results / f"{self.block}-{cell}-s{seed}" for seed in self.seeds]

    def summaries(self, cell: str) -> list[Summary]:
        """Return the summaries of a cell, one per seed."""
        return [read_document(RunFolder(folder).summary_file) for folder in self.folders(cell)]

    def values(self, cell: str, read: Read) -> list[float | None]:
        """Return one number per seed."""
        return [read(summary) for summary in self.summaries(cell)]

    def command(self, cell: str) -> str:
        """Return the command of a cell's first seed, with data where users have theirs."""
        command = RunFolder(self.folders(cell)[0]).read_provenance()["command"]
        words = [word for word in command.split() if not word.startswith("data-root=")]
        return " ".join([*words, "data-root=../shared/data"])

    def minutes(self) -> str:
        """Return how long the block took."""
        note = read_document(self.results / f"{self.block}.json")
        return f"{note['runs']} runs, {note['jobs']} at a time, {note['seconds'] / 60:.0f} min"


def spread(values: Iterable[float | None], scale: float = 100.0, digits: int = 1) -> str:
    """Write mean and sample standard deviation; say how many seeds have a value if not all."""
    every = list(values)
    known = [value * scale for value in every if value is not None]
    if not known:
        return "-"
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    text = f"{statistics.fmean(known):.{digits}f} ± {deviation:.{digits}f}"
    return text if len(known) == len(every) else f"{text} ({len(known)} of {len(every)} seeds)"


def field(name: str) -> Read:
    """Read one field of a summary."""
    return lambda summary: summary.get(name)


def output(name: str) -> Read:
    """Read the accuracy of one of a method's results; a method with one result has only ``w``."""

    def read(summary: Summary) -> float | None:
        others = summary.get("other_output_accuracy") or {}
        saved = summary["final_accuracy"] if others or name == "w" else None
        return others.get(name, saved)

    return read


def comparison(runs: Runs, columns: Mapping[str, tuple[Read, float, int]]) -> str:
    """Write one row per cell."""
    rows = [
        [cell, *(spread(runs.values(cell, read), scale, d) for read, scale, d in columns.values())]
        for cell in BLOCKS[runs.block].cells
    ]
    return table(("method", *columns), rows)


def commands(runs: Runs, cells: Sequence[str]) -> str:
    """Quote the commands of some cells."""
    lines = "\n".join(runs.command(cell) for cell in cells)
    return f"```sh\n{lines}\n```"


def coefficients(runs: Runs) -> str:
    """Write the mean coefficient of each group over rounds, beside Table II."""
    paper = {
        "A": "0.18 ± 0.09",
        "B": "0.27 ± 0.03",
        "C": "0.37 ± 0.01",
        "freeloaders": "0.75 ± 0.01",
    }
    seen: dict[str, list[float]] = {group: [] for group in GROUPS}
    late: dict[str, list[float]] = {group: [] for group in GROUPS}
    for folder in runs.folders("nobody-leaves"):
        config = read_document(RunFolder(folder).config_file)
        clients, last = int(config["num-clients"]), int(config["num-rounds"])
        honest = clients - int(config["freeloaders"])
        rows = [row for row in read_lines(RunFolder(folder).clients_file) if row["round"] > 1]
        for group in GROUPS:
            mine = [row for row in rows if _group(row["client"], honest, clients) == group]
            seen[group].append(statistics.fmean(row["alpha"] for row in mine))
            half = [row["alpha"] for row in mine if row["round"] > last / 2]
            late[group].append(statistics.fmean(half))
    lines = [[g, paper[g], spread(seen[g], 1, 2), spread(late[g], 1, 2)] for g in GROUPS]
    return table(("group", "Table II", "rounds 2 to 20", "rounds 11 to 20"), lines)


def _group(client: int, honest: int, clients: int) -> str:
    return group_of(client, clients) if client < honest else "freeloaders"


def detectors(runs: Runs, detector: str) -> str:
    """Write TPR and FPR over the grid."""
    rows = []
    for kappa in KAPPAS:
        row = [f"{kappa}"]
        for strikes in LAMBDAS.values():
            cell = f"{detector}-k{kappa}-l{strikes}"
            rates = (runs.values(cell, field(f"freeloader_{name}")) for name in ("tpr", "fpr"))
            row.append(" / ".join(spread(values, 100, 0) for values in rates))
        rows.append(row)
    return table(("kappa", *(f"lambda = {name}: TPR / FPR %" for name in LAMBDAS)), rows)


def accuracy_columns(*names: str) -> dict[str, tuple[Read, float, int]]:
    """Return columns of percentages of summary fields."""
    return {name.replace("_", " ") + " %": (field(name), 100.0, 1) for name in names}


TACO_COLUMNS: dict[str, tuple[Read, float, int]] = {
    "accuracy of w %": (output("w"), 100.0, 1),
    "accuracy of z %": (output("z"), 100.0, 1),
    "best round of w %": (field("best_accuracy"), 100.0, 1),
    "rounds to target": (field("rounds_to_target"), 1.0, 1),
    "compute s to target": (field("compute_seconds_to_target"), 1.0, 1),
    "compute s in all": (field("client_compute_seconds"), 1.0, 0),
}


def section(results: Path, block: str) -> str:
    """Write a block's section."""
    runs = Runs(results, block)
    parts = [f"### {block}", f"{runs.minutes()}."]
    cells = list(BLOCKS[block].cells)
    if block == "freeloaders":
        parts += [coefficients(runs), "Guarded:", detectors(runs, "guarded")]
        parts += ["Printed:", detectors(runs, "printed")]
        cells = ["nobody-leaves", "guarded-k0.6-l4", "printed-k0.6-l4"]
    elif block.startswith("taco"):
        parts.append(comparison(runs, TACO_COLUMNS))
    elif block.startswith("fedadw"):
        columns = accuracy_columns("personal_accuracy", "personal_std", "personal_worst")
        parts.append(comparison(runs, columns | accuracy_columns("final_accuracy")))
    elif block == "fedbac":
        columns = accuracy_columns("final_accuracy", "mean_last5_accuracy", "best_accuracy")
        columns["smoothness (points)"] = (field("smoothness"), 100.0, 1)
        parts += [comparison(runs, columns), couplings(runs)]
    else:
        columns = accuracy_columns("final_accuracy", "mean_last5_accuracy", "best_accuracy")
        parts.append(comparison(runs, columns))
    return "\n\n".join([*parts, commands(runs, cells)])


def couplings(runs: Runs) -> str:
    """Write FedBaC's own diagnostics, means over the second half of the rounds."""
    names = ("reliability_coupling", "contribution_coupling", "fairness_gap")
    rows = []
    for cell in ("fedbac", "floor", "current", "no-regulariser"):
        files = [RunFolder(folder).history_file for folder in runs.folders(cell)]
        histories = [read_lines(file) for file in files]
        halves = [[r for r in h if r["round"] > h[-1]["round"] / 2] for h in histories]
        means = [[statistics.fmean(r[name] for r in half) for half in halves] for name in names]
        rows.append([cell, *(spread(values, 1, 2) for values in means)])
    return table(("method", *(name.replace("_", " ") for name in names)), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the sections of all blocks that have been run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence_tables")
    parser.add_argument("blocks", nargs="*", default=list(BLOCKS))
    parser.add_argument("--results-dir", type=Path, default=Path("runs/evidence"))
    arguments = parser.parse_args(argv)
    for block in arguments.blocks:
        if (arguments.results_dir / f"{block}.json").exists():
            print(section(arguments.results_dir, block), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
