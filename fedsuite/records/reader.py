"""Runs as their readers see them: one, a suite's or a folder's, whatever state they are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import UserError
from fedsuite.records.writer import META, is_being_written, resume_command

DONE = ("finished", "target reached")
LONGEST_SETTING = 48
MANIFEST = "suite.json"
OUTPUT = "console.log"  # what a suite's run said on its terminal
NEEDED = ("algo", "dataset", "model", "partition", "seed", "num-rounds", "num-clients")
# How and where a run was made, which does not change what it learns.
OUTSIDE = frozenset(
    "results-dir run-name run-id resume data-root device client-threads round-timeout "
    "checkpoint-every tracking algo-settings".split()
)
# Settings that follow from the algorithm unless they are typed.
FOLLOWS_ALGO = ("personal-eval", "client-test-fraction", "probe-per-class")
# Labels whose values speak for themselves.
PLAIN = frozenset("dataset data split detector setting model partition algo method variant".split())


@dataclass(frozen=True)
class Run:
    """One run's files, read once; ``clients`` is read when asked for, since it is large."""

    folder: Path
    state: str
    note: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.folder.name

    @property
    def done(self) -> bool:
        """Whether it ran to its end."""
        return self.state in DONE

    @property
    def meta(self) -> Mapping[str, Any]:
        """Command, versions, machine and split."""
        return self.config.get(META, {})

    @property
    def seed(self) -> Any:
        """Its seed."""
        return self.labels.get("seed", self.config.get("seed"))

    def clients(self) -> list[dict[str, Any]]:
        """Read a line per client and round."""
        try:
            rows = read_lines(self.folder / "clients.jsonl")
            return [row for row in rows if "round" in row and "client" in row]
        except (OSError, ValueError, TypeError):
            return []

    def curve(self, field: str) -> list[tuple[int, float]]:
        """Return a field of the history by round, where it was measured."""
        return [(r["round"], r[field]) for r in self.history if r.get(field) is not None]


def read_run(folder: Path) -> Run:
    """Read one run's folder; a damaged one becomes a run that says what is wrong with it."""
    if not folder.is_dir():
        return Run(folder, "not started", "its folder is not there yet")
    if not (folder / "config.json").exists():
        if not any(folder.iterdir()):
            return Run(folder, "empty", "the folder holds nothing")
        if (folder / OUTPUT).exists():
            return _without_settings(folder)
        return Run(folder, "broken", "the folder has no config.json, so it is not a run")
    try:
        config = read_document(folder / "config.json")
        missing = [key for key in NEEDED if key not in config]
        if missing:
            return Run(folder, "broken", f"config.json does not say {', '.join(missing)}")
        summary = read_document(folder / "summary.json")
        history = read_lines(folder / "history.jsonl")
        if any(not isinstance(r, dict) or not isinstance(r.get("round"), int) for r in history):
            raise ValueError("history.jsonl has lines that are not rounds")
    except (UserError, OSError, ValueError, TypeError) as error:
        return Run(folder, "broken", str(error))
    state, note = _state(folder, config, summary, history)
    return Run(folder, state, note, config, summary, history)


def _without_settings(folder: Path) -> Run:
    """Tell a run that was refused before it wrote its settings from one that is about to."""
    said = (folder / OUTPUT).read_text(errors="replace")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lines and (lines[-1].startswith("fedsuite: ") or "Traceback (most recent call" in said):
        return Run(folder, "failed", lines[-1].removeprefix("fedsuite: "))
    return Run(folder, "not started", "it has not written its settings yet")


def _state(
    folder: Path, config: Mapping[str, Any], summary: Mapping[str, Any], history: Sequence[Any]
) -> tuple[str, str]:
    done = history[-1]["round"] if history else 0
    progress = f"{done} of {config['num-rounds']} rounds"
    status = summary.get("status")
    if status in DONE:
        return str(status), ""
    if status:
        reason = [line for line in str(summary.get("reason", "")).splitlines() if line.strip()]
        return str(status), f"{progress}; {reason[-1].strip() if reason else 'no reason recorded'}"
    if is_being_written(folder):
        return "running", progress
    return "not finished", f"{progress}, nobody is writing it; `{resume_command(folder)}` goes on"


@dataclass(frozen=True)
class PaperNumber:
    """A number a paper prints, in per cent where ours is a fraction."""

    labels: Mapping[str, Any]
    value: float
    std: float | None
    source: str
    metric: str


@dataclass(frozen=True)
class Collection:
    """Runs that belong together, and how their table is laid out.

    ``also`` are further metrics to show, each with which is better, higher or lower; ``planned``
    is how many runs a suite has, here or not.
    """

    name: str
    title: str
    runs: Sequence[Run]
    scale: str = ""
    metric: str = "final_accuracy"
    better: str = "higher"
    also: Mapping[str, str] = field(default_factory=dict)
    rows: str = "method"
    columns: Sequence[str] = ("dataset",)
    command: str = ""
    note: str = ""
    paper: Sequence[PaperNumber] = ()
    remarks: Sequence[str] = ()
    planned: int = 0

    @property
    def of_suite(self) -> bool:
        """Whether the runs are a suite's, which says how many it has."""
        return self.planned > 0

    @property
    def small(self) -> bool:
        """Whether this is a smaller variant of an experiment."""
        return self.scale == "small"

    def row(self, run: Run) -> str:
        """Return the row of the table a run belongs to."""
        return str(run.labels.get(self.rows, "?"))

    def column(self, run: Run) -> str:
        """Return the column of the table a run belongs to."""
        return column_name(run.labels, self.columns)

    def row_names(self) -> list[str]:
        """Rows in the order of the runs."""
        return list(dict.fromkeys(self.row(run) for run in self.runs if run.labels))

    def column_names(self) -> list[str]:
        """Columns in the order of the runs."""
        return list(dict.fromkeys(self.column(run) for run in self.runs if run.labels))

    def places(self, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
        """Return the columns of these runs with their labels."""
        return {
            self.column(run): {name: run.labels.get(name) for name in self.columns}
            for run in runs
            if run.labels
        }

    def printed(self, metric: str, place: Mapping[str, Any]) -> PaperNumber | None:
        """Return the number a paper prints for a place that these labels name, if it does."""
        for number in self.paper:
            here = all(str(number.labels.get(name)) == str(at) for name, at in place.items())
            if here and number.metric == metric:
                return number
        return None

    def usable(self, row: str, column: str) -> list[Run]:
        """Return a cell's finished runs; if there are none, those with rounds so far."""
        here = [r for r in self.runs if r.labels and (self.row(r), self.column(r)) == (row, column)]
        done = [run for run in here if run.done]
        return done or [run for run in here if run.history]


def column_name(labels: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Name a column by its labels; those that do not speak for themselves with their key."""
    parts = [str(labels[k]) if k in PLAIN else f"{k} {labels[k]}" for k in columns if k in labels]
    return ", ".join(parts) or "all"


def open_collection(name: str, results_dir: str = "runs") -> Collection:
    """Open a run, a suite or a folder of runs, by its path or its name among the results."""
    for folder in (Path(name), Path(results_dir) / name):
        if folder.is_dir():
            break
    else:
        raise UserError(
            f"There is no folder '{name}' here nor in {Path(results_dir).absolute()}. Give a run, "
            "a suite's folder or a folder of runs."
        )
    folder = folder.absolute()
    if is_suite(folder):
        return _suite(folder)
    if (folder / "config.json").exists():
        return lay_out(folder.name, [read_run(folder)])
    suites = [path for path in _folders(folder) if is_suite(path)]
    places = [p for p in _folders(folder) if p not in suites and not _is_report(p)]
    runs = [read_run(path) for path in places]
    names = ", ".join(path.name for path in suites)
    if not runs and suites:
        raise UserError(f"{folder} holds no runs but suites: {names}. Give the folder of one.")
    if not runs:
        raise UserError(f"There are no runs in {folder}. Give a run or a folder of runs.")
    collection = lay_out(folder.name, runs)
    left_out = [f"Suites have reports of their own and are left out: {names}."] if suites else []
    return replace(collection, remarks=[*collection.remarks, *left_out])


def is_suite(folder: Path) -> bool:
    """Whether a folder holds a suite's runs."""
    return (folder / MANIFEST).exists()


def lay_out(name: str, runs: Sequence[Run]) -> Collection:
    """Lay runs out by what tells them apart: methods down, settings across."""
    readable = [run for run in runs if run.config]
    across = ["dataset", *(k for k in varying(readable) if k != "dataset")]
    shown = []
    for run in runs:
        if run.config:
            labels = {k: run.config.get(k, "") for k in across}
            labels |= {"method": method(run, readable), "seed": run.config["seed"]}
            run = replace(run, labels=labels)
        shown.append(run)
    scored = any(run.summary.get("final_accuracy") is not None for run in readable)
    metric = "final_accuracy" if scored or not readable else "personal_accuracy"
    collection = Collection(name, name, shown, metric=metric, columns=across)
    longest = max(map(len, collection.column_names()), default=0)
    return _number_settings(collection) if longest > LONGEST_SETTING else collection


def _number_settings(collection: Collection) -> Collection:
    """Give settings that differ in many keys a number, and say what each is."""
    numbers = {name: f"#{place}" for place, name in enumerate(collection.column_names(), 1)}
    runs = [
        replace(run, labels={**run.labels, "setting": numbers[collection.column(run)]})
        if run.labels
        else run
        for run in collection.runs
    ]
    remarks = [f"Setting {number} is {name}." for name, number in numbers.items()]
    return replace(collection, runs=runs, columns=("dataset", "setting"), remarks=remarks)


def varying(runs: Iterable[Run]) -> list[str]:
    """Return the shared settings in which runs differ, beside seeds."""
    runs = list(runs)
    keys = dict.fromkeys(key for run in runs for key in run.config)
    ignored = OUTSIDE | {"algo", "seed", META, *FOLLOWS_ALGO}
    shared = [key for key in keys if key not in ignored and "." not in key]
    return [key for key in shared if len({str(run.config.get(key)) for run in runs}) > 1]


def method(run: Run, others: Iterable[Run]) -> str:
    """Name a run's method: the algorithm, and its own settings where its runs differ in them."""
    algo = run.config["algo"]
    same = [own_settings(other) for other in others if other.config.get("algo") == algo]
    own = own_settings(run)
    differing = [k for k in own if len({str(settings.get(k)) for settings in same}) > 1]
    name = str(algo).split(":")[0].rsplit(".", 1)[-1] if ":" in str(algo) else str(algo)
    return f"{name} ({', '.join(f'{k}={own[k]}' for k in differing)})" if differing else name


def own_settings(run: Run) -> dict[str, Any]:
    """Return the settings of the algorithm alone."""
    own = {k.split(".", 1)[1]: v for k, v in run.config.items() if "." in k}
    outside = run.config.get("algo-settings")
    return own | ({"settings": outside} if outside else {})


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _suite(folder: Path) -> Collection:
    try:
        document = read_document(folder / MANIFEST)
        runs = [
            replace(read_run(folder / entry["name"]), labels=entry["labels"])
            for entry in document["runs"]
        ]
        metric = document.get("metric", "final_accuracy")
        paper = [
            PaperNumber(
                labels=p["labels"],
                value=float(p["value"]),
                std=p.get("std"),
                source=p.get("source", ""),
                metric=p.get("metric", metric),
            )
            for p in (*document.get("paper", ()), *document.get("paper_also", ()))
        ]
        known = {entry["name"] for entry in document["runs"]}
        others = [p for p in _folders(folder) if p.name not in known and _is_run(p)]
        remark = (
            f"{len(others)} more runs beside the suite's manifest are not part of it as it now "
            "stands and are left out."
        )
        return Collection(
            name=document["name"],
            title=document.get("title", document["name"]),
            runs=runs,
            scale=document.get("scale", ""),
            metric=metric,
            better=document.get("better", "higher"),
            also={a["metric"]: a["better"] for a in document.get("also", ())},
            rows=document["rows"],
            columns=tuple(document["columns"]),
            command=document.get("command", ""),
            note=document.get("note", ""),
            paper=paper,
            remarks=[remark] if others else [],
            planned=int(document.get("planned", len(runs))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{folder / MANIFEST} is not a suite's manifest: {error!r} is missing or of the wrong "
            "kind. Run the suite again to write it anew."
        ) from None


def _is_report(folder: Path) -> bool:
    return not _is_run(folder) and all((folder / n).exists() for n in ("index.html", "runs.csv"))


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").exists()
