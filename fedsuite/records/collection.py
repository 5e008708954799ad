"""Runs that belong together: a suite's, a folder's, or one alone, laid out as a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedsuite.config import FOLLOWS_ALGO, RUNTIME_KEYS
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError, kebab
from fedsuite.core.text import counted
from fedsuite.metrics import FINAL_SCORES, HIGHER
from fedsuite.records.bundle import unpacked
from fedsuite.records.checks import is_number
from fedsuite.records.folder import (
    DEFAULT_RESULTS,
    REPORT_PAGE,
    REPORT_RUNS,
    RunFolder,
    SuiteFolder,
    match_run,
    run_folders,
    subfolders,
)
from fedsuite.records.provenance import META, RUN_ID
from fedsuite.records.reader import Run, read_run

LONGEST_SETTING = 48
DEFAULT_METRIC = FINAL_SCORES[0].name
METHOD = "method"  # the label of what is compared, unless a suite has one of its own
# Settings that do not tell experiments apart.
UNIMPORTANT = frozenset(
    "algo seed device client-threads checkpoint-every tracking algo-settings".split()
).union(map(kebab, RUNTIME_KEYS), FOLLOWS_ALGO, (RUN_ID, META))
# Labels whose values need no key beside them.
SELF_EXPLANATORY = frozenset(
    "dataset data split detector setting model partition algo method variant".split()
)


@dataclass(frozen=True)
class PaperNumber:
    """One number of a paper: where it is printed, what it measures, its labels and its value.

    Shares are in per cent, as printed; ``std`` is None where the paper prints none. ``target`` is
    the accuracy, a fraction, to which rounds or seconds were counted.
    """

    source: str
    metric: str
    labels: Mapping[str, Any]
    value: float
    std: float | None
    target: float | None = None


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
    metric: str = DEFAULT_METRIC
    better: str = HIGHER
    also: Mapping[str, str] = field(default_factory=dict)
    rows: str = METHOD
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

    def tag(self, title: str) -> str:
        """Mark a title if the runs are at small scale."""
        return f"{title} (small scale)" if self.small else title

    def row(self, run: Run) -> str:
        """Return the row of the table a run belongs to."""
        return str(run.labels.get(self.rows, "?"))

    def column(self, run: Run) -> str:
        """Return the column of the table a run belongs to."""
        return column_name(run.labels, self.columns)

    def row_names(self) -> list[str]:
        """Return the rows in the order of the runs."""
        return list(dict.fromkeys(self.row(run) for run in self.runs if run.labels))

    def column_names(self) -> list[str]:
        """Return the columns in the order of the runs."""
        return list(self.column_labels())

    def column_labels(self) -> dict[str, dict[str, Any]]:
        """Return every column with the labels that name it, in the order of the runs."""
        return {
            self.column(run): {name: run.labels.get(name) for name in self.columns}
            for run in self.runs
            if run.labels
        }

    def paper_number(self, metric: str, labels: Mapping[str, Any]) -> PaperNumber | None:
        """Return the number that a paper prints for a metric and labels, if it does.

        A paper's number has no label for what its table does not vary, such as units.
        """
        for number in self.paper:
            known = {name: v for name, v in labels.items() if name in number.labels}
            same = all(str(number.labels[name]) == str(v) for name, v in known.items())
            if same and known and number.metric == metric:
                return number
        return None

    def usable(self, row: str, column: str) -> list[Run]:
        """Return a cell's finished runs; if there are none, those with rounds so far."""
        here = [r for r in self.runs if r.labels and (self.row(r), self.column(r)) == (row, column)]
        done = [run for run in here if run.done]
        return done or [run for run in here if run.history]


def column_name(labels: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Name a column by its labels, with their keys where values do not explain themselves."""
    named = [key for key in columns if key in labels]
    parts = [str(labels[k]) if k in SELF_EXPLANATORY else f"{k} {labels[k]}" for k in named]
    return ", ".join(parts) or "all"


def open_collection(name: str, results_dir: str = DEFAULT_RESULTS) -> Collection:
    """Open a run, a suite or a folder of runs, as :func:`find_collection` finds it."""
    folder = find_collection(name, results_dir)
    if SuiteFolder(folder).exists:
        return _open_suite(SuiteFolder(folder))
    if RunFolder(folder).exists:
        return lay_out(folder.name, [read_run(folder)])
    return _open_folder(folder)


def find_collection(name: str, results_dir: str = DEFAULT_RESULTS) -> Path:
    """Return a folder by its path, by its name in the results folder, or as a bundle holds it.

    A run may also be named as :func:`find_run` finds it.
    """
    inside = unpacked(name)
    places = (Path(inside), Path(results_dir) / inside)
    folder = next(filter(os.path.isdir, places), None) or match_run(name, results_dir)
    if folder is not None:
        return folder.absolute()
    raise UserError(
        f"There is no folder '{name}' in the current directory nor in "
        f"{Path(results_dir).absolute()}. Give a run, a suite's folder, a folder of runs or a "
        "bundle."
    )


def _open_folder(folder: Path) -> Collection:
    suites = [path for path in subfolders(folder) if SuiteFolder(path).exists]
    others = [path for path in subfolders(folder) if path not in suites and not _is_report(path)]
    names = ", ".join(path.name for path in suites)
    if not others and suites:
        raise UserError(f"{folder} has no runs but suites: {names}. Give the folder of one.")
    if not others:
        raise UserError(f"There are no runs in {folder}. Give a run or a folder of runs.")
    collection = lay_out(folder.name, [read_run(path) for path in others])
    left_out = [f"Suites have reports of their own and are left out: {names}."] if suites else []
    return replace(collection, remarks=[*collection.remarks, *left_out])


def lay_out(name: str, runs: Sequence[Run]) -> Collection:
    """Lay runs out by what tells them apart: methods as rows, settings as columns."""
    readable = [run for run in runs if run.config]
    across = ["dataset", *(k for k in varying(readable) if k != "dataset")]
    labelled = []
    for run in runs:
        if run.config:
            labels = {k: run.config.get(k, "") for k in across}
            labels |= {METHOD: method(run, readable), "seed": run.config["seed"]}
            run = replace(run, labels=labels)
        labelled.append(run)
    collection = Collection(name, name, labelled, metric=_score(readable), columns=across)
    longest = max(map(len, collection.column_names()), default=0)
    return _number_settings(collection) if longest > LONGEST_SETTING else collection


def _score(runs: Sequence[Run]) -> str:
    """Return the metric of the table: the global model's accuracy, else the clients' own."""
    names = [metric.name for metric in FINAL_SCORES]
    scored = (n for n in names if any(is_number(run.summary.get(n)) for run in runs))
    return next(scored, names[-1] if runs else names[0])


def _number_settings(collection: Collection) -> Collection:
    """Number settings that differ in many keys, and list what each number stands for."""
    numbers = {name: f"#{number}" for number, name in enumerate(collection.column_names(), 1)}
    runs = [
        replace(run, labels={**run.labels, "setting": numbers[collection.column(run)]})
        if run.labels
        else run
        for run in collection.runs
    ]
    remarks = [f"Setting {number} is {name}." for name, number in numbers.items()]
    return replace(collection, runs=runs, columns=("dataset", "setting"), remarks=remarks)


def varying(runs: Iterable[Run]) -> list[str]:
    """Return the shared settings that tell the runs' experiments apart."""
    runs = list(runs)
    keys = dict.fromkeys(key for run in runs for key in run.config)
    shared = [key for key in keys if key not in UNIMPORTANT and "." not in key]
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


def _open_suite(folder: SuiteFolder) -> Collection:
    """Read a suite by its manifest."""
    document = read_document(folder.manifest_file)
    try:
        return _read_manifest(document, folder)
    except KeyError as error:
        why = f"it lacks {error}"
    except (TypeError, ValueError) as error:
        why = str(error)
    raise UserError(
        f"{folder.manifest_file} is not a suite's manifest: {why}. Run the suite again to rewrite "
        "it."
    )


def _read_manifest(document: Mapping[str, Any], folder: SuiteFolder) -> Collection:
    entries = {
        _text(entry, "name"): (_labels(entry), _text(entry, "code", ""))
        for entry in _objects(document, "runs", needed=True)
    }
    metric = _text(document, "metric", DEFAULT_METRIC)
    numbers = (*_objects(document, "paper"), *_objects(document, "paper_also"))
    others = [run for run in run_folders(folder.path) if run.name not in entries]
    are = "is" if len(others) == 1 else "are"
    remark = f"{counted(len(others), 'more run')} in this folder {are} not in the suite's manifest."
    columns = document["columns"]
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise TypeError("'columns' is no list of labels")
    return Collection(
        name=_text(document, "name"),
        title=_text(document, "title", document["name"]),
        runs=[
            replace(read_run(folder.path / name), labels=labels, code=code)
            for name, (labels, code) in entries.items()
        ],
        scale=_text(document, "scale", ""),
        metric=metric,
        better=_text(document, "better", HIGHER),
        also={_text(a, "metric"): _text(a, "better") for a in _objects(document, "also")},
        rows=_text(document, "rows"),
        columns=tuple(columns),
        command=_text(document, "command", ""),
        note=_text(document, "note", ""),
        paper=[_paper_number(number, metric) for number in numbers],
        remarks=[remark] if others else [],
        planned=int(document.get("planned", len(entries))),
    )


def _paper_number(document: Mapping[str, Any], metric: str) -> PaperNumber:
    std, target = document.get("std"), document.get("target")
    return PaperNumber(
        source=_text(document, "source", ""),
        metric=_text(document, "metric", metric),
        labels=_labels(document),
        value=float(document["value"]),
        std=None if std is None else float(std),
        target=None if target is None else float(target),
    )


def _text(document: Mapping[str, Any], key: str, default: str | None = None) -> str:
    found = document[key] if default is None else document.get(key, default)
    if not isinstance(found, str):
        raise TypeError(f"'{key}' is no text")
    return found


def _labels(document: Mapping[str, Any]) -> dict[str, Any]:
    labels = document["labels"]
    if not isinstance(labels, dict) or not all(map(_is_scalar, labels.values())):
        raise TypeError("'labels' is no object of texts and numbers")
    return labels


def _objects(
    document: Mapping[str, Any], key: str, needed: bool = False
) -> list[Mapping[str, Any]]:
    found = document[key] if needed else document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise TypeError(f"'{key}' is no list of objects")
    return found


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_report(folder: Path) -> bool:
    files = (REPORT_PAGE, REPORT_RUNS)
    return not RunFolder(folder).exists and all(os.path.exists(folder / name) for name in files)
