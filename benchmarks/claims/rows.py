"""Rows of runs, the source of every number on the page of claims.

``docs/evidence/runs/NAME.csv`` has a line per run of a suite, as a report's ``runs.csv`` has it,
and what is averaged over its rounds; ``NAME.rounds.csv`` has the accuracy of every scored round.
"""

from __future__ import annotations

import csv
import io
import shlex
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fedsuite.core.files import write_atomically
from fedsuite.records.collection import Collection, open_collection
from fedsuite.records.folder import DIVERGED
from fedsuite.records.reader import Run
from fedsuite.report.results import runs_csv, write_csv
from fedsuite.suites.code_version import code_version

FOLDER = Path(__file__).parents[2] / "docs" / "evidence" / "runs"
ROUNDS = ".rounds.csv"
COUPLING = "reliability_coupling"
LATE_COUPLING, OTHER_OUTPUT = "late_reliability_coupling", "accuracy_of_other_output"

Row = Mapping[str, str]


def collect(suite: Path, folder: Path = FOLDER) -> None:
    """Take in the rows of a suite's runs that ended, those that diverged among them.

    They replace rows with the same labels; others stay, since a part of a suite may be run
    elsewhere or later.
    """
    collection = open_collection(str(suite))
    done = [run for run in collection.runs if run.done or diverged(run)]
    found = _rows(_with_derived(Collection(**{**vars(collection), "runs": done})))
    file, curves = folder / f"{collection.name}.csv", folder / f"{collection.name}{ROUNDS}"
    rows = _merged(_read(file), found)
    others = {row["run"] for row in rows} - {run.name for run in done}
    rounds = [line for line in _read(curves) if line["run"] in others] + _rows(_curves(done))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _csv(rows).encode())
    write_atomically(curves, _csv(rounds).encode())


def diverged(run: Run) -> bool:
    """Whether a run ended early since its model no longer changed: that is its result."""
    return str(run.summary.get("reason") or "").startswith(DIVERGED)


def read(name: str, folder: Path = FOLDER) -> list[Row]:
    """Return the rows of a suite; none where it was not run."""
    return _read(folder / f"{name}.csv")


def stale(rows: Iterable[Row], version: Callable[[str], str] = code_version) -> list[Row]:
    """Return the rows that other code has made than what is here now."""
    return [row for row in rows if not version(algorithm(row)).startswith(row["code_fingerprint"])]


def algorithm(row: Row) -> str:
    """Return the method of a run, whatever its label is, from its command."""
    return shlex.split(row["command"])[2]


def matching(rows: Iterable[Row], labels: Mapping[str, object]) -> list[Row]:
    """Return the rows that have these labels."""
    wanted = {name: str(value) for name, value in labels.items()}
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def by_seed(rows: Iterable[Row], labels: Mapping[str, object], metric: str) -> dict[str, float]:
    """Return a metric of the runs with these labels, where they have it."""
    found = ((row["seed"], row.get(metric, "")) for row in matching(rows, labels))
    return {seed: float(value) for seed, value in found if value}


def late_mean(history: Iterable[Mapping[str, object]], name: str) -> float | None:
    """Return the mean of a number over the second half of the rounds, None without any."""
    rounds = [(row["round"], row.get(name)) for row in history]
    last = max((int(str(number)) for number, _ in rounds), default=0)
    late = [float(str(v)) for number, v in rounds if v is not None and int(str(number)) > last / 2]
    return statistics.fmean(late) if late else None


def other_output(run: Run) -> float | None:
    """Return the accuracy of the result that a method did not save, if it has one."""
    others = run.summary.get("other_output_accuracy") or {}
    return next(iter(others.values()), None)


DERIVED: dict[str, Callable[[Run], float | None]] = {
    LATE_COUPLING: lambda run: late_mean(run.history, COUPLING),
    OTHER_OUTPUT: other_output,
}


def _read(file: Path) -> list[Row]:
    return _rows(file.read_text(encoding="utf-8")) if file.exists() else []


def _rows(text: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(text)))


def _merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the rows of both; where both have the same labels, the new one in the old's place."""
    by_labels = {_labels(row): row for row in (*old, *new)}
    return list(by_labels.values())


def _labels(row: Row) -> tuple[tuple[str, str], ...]:
    """Return what a suite says of a run: the columns between its name and its scale."""
    columns = list(row)
    return tuple((name, row[name]) for name in columns[1 : columns.index("scale")])


def _csv(rows: Sequence[Row]) -> str:
    """Write rows, of which some may have columns that others lack."""
    columns = list(dict.fromkeys(name for row in reversed(rows) for name in row))
    return write_csv([columns, *([row.get(name, "") for name in columns] for row in rows)])


def _with_derived(collection: Collection) -> str:
    header, *lines = csv.reader(io.StringIO(runs_csv(collection)))
    table: list[list[object]] = [[*header, *DERIVED]]
    for run, line in zip(collection.runs, lines, strict=True):
        table.append([*line, *(derive(run) for derive in DERIVED.values())])
    return write_csv(table)


def _curves(runs: Iterable[Run]) -> str:
    lines: list[list[object]] = [["run", "round", "accuracy"]]
    for run in runs:
        for row in run.history:
            if row.get("accuracy") is not None:
                lines.append([run.name, row["round"], f"{row['accuracy']:.4f}"])
    return write_csv(lines)
