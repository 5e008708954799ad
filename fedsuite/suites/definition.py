"""A suite: one file that defines all runs of a table or a figure.

``[base]`` holds settings that all runs share. Each entry of ``[axes]`` is a list of values of the
key it is named after, or a table of labels, each with its settings; a label is also the value of
the axis's own key unless its settings say otherwise. Where an algorithm is named, no other's
settings are. The runs are all combinations except those of
``skip``. Each ``[[override]]`` sets something for the runs whose labels are those of its ``when``.
``[small]`` overrides settings, ``[small.axes]`` picks labels and ``[[small.override]]`` wins over
all, for a variant that takes a laptop minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fedsuite import registry
from fedsuite.config import RunConfig, parse
from fedsuite.core.files import read_toml
from fedsuite.core.settings import UserError, defaults, flatten, invalid, suggest
from fedsuite.metrics import SUMMARY_METRICS
from fedsuite.records.collection import PaperNumber
from fedsuite.suites.paper_numbers import paper_numbers, sources

SCALES = ("paper", "small")
# A table of a suite needs to know which value is best.
SUITE_METRICS = {metric.name for metric in SUMMARY_METRICS if metric.better}
TYPES: dict[str, type] = {
    "title": str,
    "note": str,
    "metric": str,
    "also": list,
    "rows": str,
    "columns": list,
    "paper": list,
    "runs": int,
    "runs-small": int,
    "base": dict,
    "axes": dict,
    "skip": list,
    "override": list,
    "small": dict,
}
REQUIRED = ("title", "metric", "rows", "columns", "runs", "axes")
GIVEN_BY_COMMAND = ("data-root", "results-dir", "run-name", "resume")
KEYS = [key for key in defaults(RunConfig) if key not in ("params", *GIVEN_BY_COMMAND)]
Label = str | int | float
Settings = dict[str, Any]
Axis = dict[Label, tuple[Settings, Settings]]
Override = tuple[dict[str, list[Label]], Settings]  # which runs, by their labels; what they get


@dataclass(frozen=True)
class Plan:
    """One run of a suite: its labels in the table, and its settings."""

    labels: dict[str, Label]
    settings: Settings


@dataclass(frozen=True)
class Suite:
    """A suite file at one scale; or a sweep, which has no file but the words of its command.

    The ``path`` of a sweep is its name.
    """

    path: Path
    scale: str
    title: str
    note: str
    metric: str
    also: list[str]
    rows: str
    columns: list[str]
    paper: list[str]
    plans: list[Plan]
    sweep: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The suite's name and its folder's; at small scale it ends in -small."""
        return self.stem + ("-small" if self.small else "")

    @property
    def stem(self) -> str:
        """The suite's name at any scale."""
        return self.path.name if self.sweep else self.path.stem

    @property
    def small(self) -> bool:
        """Whether this is the variant for a laptop."""
        return self.scale == SCALES[1]

    @property
    def heading(self) -> str:
        """The title, with the scale if it is not the paper's."""
        return self.title + (" (small scale, not the paper's setting)" if self.small else "")

    def resolve(self, plan: Plan, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """Return a run's checked settings.

        What runs share may hold other algorithms' keys, and settings that have no effect here.
        """
        try:
            return parse(plan.settings | dict(changes or {}), foreign="ignore", idle="reset")
        except UserError as error:
            where = "" if self.sweep else f"{self.path}, "
            raise UserError(f"{where}run {describe_labels(plan.labels)}: {error}") from None

    def numbers(self) -> list[PaperNumber]:
        """Return the numbers that the paper prints for this suite's runs."""
        return [
            number
            for number in paper_numbers()
            if number.source in self.paper and any(_fits(number, p.labels) for p in self.plans)
        ]


def read_suite(path: Path, scale: str = SCALES[0]) -> Suite:
    """Read a suite file; refuse an unknown key or an invalid value."""
    raw = read_toml(path, "suite file")
    for key, value in raw.items():
        if key not in TYPES:
            raise UserError(f"{path}: unknown key '{key}'. {suggest(key, TYPES)}")
        if not isinstance(value, TYPES[key]) or isinstance(value, bool):
            wanted = {str: "text", list: "a list", int: "a whole number", dict: "a table"}
            raise UserError(
                f"{path}: invalid value {value!r} for {key}: it must be {wanted[TYPES[key]]}."
            )
    missing = [key for key in REQUIRED if key not in raw]
    if missing:
        raise UserError(f"{path}: the key '{missing[0]}' is missing.")
    if scale == "small" and not raw.get("small"):
        raise UserError(f"{path} has no [small] table: it cannot be run with --scale small.")
    plans = _expand(path, raw, scale)
    suite = Suite(
        path=path,
        scale=scale,
        title=raw["title"],
        note=raw.get("note", ""),
        metric=raw["metric"],
        also=raw.get("also", []),
        rows=raw["rows"],
        columns=raw["columns"],
        paper=raw.get("paper", []),
        plans=plans,
    )
    _check(suite, raw)
    return suite


def select(suite: Suite, only: Iterable[str]) -> list[Plan]:
    """Return the runs that match ``LABEL=VALUE`` pairs: one value of each label given."""
    wanted: dict[str, list[str]] = {}
    for pair in only:
        label, separator, pattern = pair.partition("=")
        values = {str(plan.labels.get(label)) for plan in suite.plans}
        known = suite.plans[0].labels
        if not separator or label not in known:
            raise invalid("--only", pair, f"write LABEL=VALUE; labels: {', '.join(known)}.")
        if not any(fnmatchcase(value, pattern) for value in values):
            raise UserError(f"--only {pair} picks no run. {suggest(pattern, sorted(values))}")
        wanted.setdefault(label, []).append(pattern)
    return [
        plan
        for plan in suite.plans
        if all(
            any(fnmatchcase(str(plan.labels[label]), pattern) for pattern in patterns)
            for label, patterns in wanted.items()
        )
    ]


def describe_labels(labels: Mapping[str, Label]) -> str:
    """Write labels as ``LABEL=VALUE`` pairs."""
    return ", ".join(f"{name}={value}" for name, value in labels.items())


def _expand(path: Path, raw: Mapping[str, Any], scale: str) -> list[Plan]:
    small = dict(raw["small"]) if scale == "small" else {}
    picked, exceptions = small.pop("axes", {}), small.pop("override", [])
    if not isinstance(picked, dict):
        raise UserError(f"{path}: invalid value {picked!r} for small.axes: it must be a table.")
    axes = {name: _axis(path, name, axis) for name, axis in raw["axes"].items()}
    overrides = _overrides(path, "override", raw.get("override", []), axes)
    for name, axis in picked.items():
        if name not in axes:
            raise UserError(f"{path}: small.axes.{name} is not an axis. {suggest(name, axes)}")
        axes[name] = _small_axis(path, name, axis, axes[name])
    last = _overrides(path, "small.override", exceptions, axes)
    base, override = _settings(path, "base", raw.get("base", {})), _settings(path, "small", small)
    skips = raw.get("skip", [])
    for skipped in skips:
        if not isinstance(skipped, dict) or not skipped.keys() <= axes.keys():
            raise UserError(
                f"{path}: invalid value {skipped!r} for skip: it must be a table of labels."
            )
    plans = []
    for labels in itertools.product(*axes.values()):
        chosen = dict(zip(axes, labels, strict=True))
        if any(chosen | skipped == chosen for skipped in skips):
            continue
        settings = dict(base)
        for name, label in chosen.items():
            settings |= axes[name][label][0]
        settings |= _matching(overrides, chosen) | override
        for name, label in chosen.items():
            settings |= axes[name][label][1]
        settings |= _matching(last, chosen)
        plans.append(Plan(chosen, settings))
    return plans


def _axis(path: Path, name: str, raw: Any) -> Axis:
    if isinstance(raw, list) and raw and all(isinstance(v, Label) for v in raw):
        return {value: ({name: value}, {}) for value in raw}
    if isinstance(raw, dict) and raw:
        usual = {label: _implied(name, label) for label in raw}
        return {
            label: (usual[label] | _own(path, f"axes.{name}.{label}", own, [usual[label]]), {})
            for label, own in raw.items()
        }
    raise UserError(f"{path}: axes.{name} must be a list of values or a table of labels.")


def _small_axis(path: Path, name: str, raw: Any, axis: Axis) -> Axis:
    """Keep the labels named; a table also overrides their settings, or adds a label."""
    if isinstance(raw, list) and raw:
        for label in raw:
            if label not in axis:
                known = suggest(str(label), [str(known) for known in axis])
                raise UserError(f"{path}: small.axes.{name} has no label '{label}'. {known}")
        return {label: axis[label] for label in raw}
    if isinstance(raw, dict) and raw:
        usual = {label: axis[label][0] if label in axis else _implied(name, label) for label in raw}
        return {
            label: (usual[label], _own(path, f"small.axes.{name}.{label}", own, [usual[label]]))
            for label, own in raw.items()
        }
    raise UserError(f"{path}: small.axes.{name} must be a list of labels or a table of them.")


def _overrides(path: Path, where: str, raw: Any, axes: Mapping[str, Axis]) -> list[Override]:
    """Read tables of ``when``, a label or a list of labels per axis, and settings."""
    if not isinstance(raw, list):
        raise UserError(f"{path}: {where} must be tables written as [[{where}]].")
    found = []
    for table in raw:
        when = table.get("when") if isinstance(table, dict) else None
        if not isinstance(when, dict) or not when or len(table) == 1:
            raise UserError(
                f"{path}: invalid value {table!r} for {where}: it must have settings and a 'when' "
                'with labels, e.g. when = { algo = "fedavg" }.'
            )
        chosen = {axis: v if isinstance(v, list) else [v] for axis, v in when.items()}
        for name, labels in chosen.items():
            if name not in axes:
                raise UserError(
                    f"{path}: '{name}' in {where} is not an axis. {suggest(name, axes)}"
                )
            for label in labels:
                if label not in axes[name]:
                    known = suggest(str(label), [str(known) for known in axes[name]])
                    raise UserError(f"{path}: {where} has no label '{label}' of {name}. {known}")
        own = {key: value for key, value in table.items() if key != "when"}
        place = ", ".join(f"{name}={_either(labels)}" for name, labels in chosen.items())
        given = [[axes[name][x][0] | axes[name][x][1] for x in chosen[name]] for name in chosen]
        of_algos = next((labels for labels in given if all("algo" in x for x in labels)), [])
        found.append((chosen, _own(path, f"{where} ({place})", own, of_algos)))
    return found


def _matching(overrides: Iterable[Override], labels: Mapping[str, Label]) -> Settings:
    """Return what a run's overrides set; later ones win."""
    settings: Settings = {}
    for when, own in overrides:
        if all(labels[name] in chosen for name, chosen in when.items()):
            settings |= own
    return settings


def _implied(name: str, label: Label) -> Settings:
    return {name: label} if name in KEYS else {}


def _settings(path: Path, where: str, raw: Any) -> Settings:
    """Flatten a table of settings; an algorithm's own may be a table under its name."""
    if not isinstance(raw, dict):
        raise UserError(
            f"{path}: invalid value {raw!r} for {where}: it must be a table of settings."
        )
    flat = flatten(raw)
    for key in flat:
        if key in GIVEN_BY_COMMAND:
            raise UserError(f"{path}: {where}.{key} is set by the command, not by a suite.")
        if "." not in key and key not in KEYS:
            raise UserError(f"{path}: unknown key '{where}.{key}'. {suggest(key, KEYS)}")
    return flat


def _own(path: Path, where: str, raw: Any, before: Iterable[Settings]) -> Settings:
    """Read settings that are for some runs; if their algorithms are known, refuse other ones' keys.

    ``before`` is what labels of these runs have set already.
    """
    flat = _settings(path, where, raw)
    algos = [own["algo"] for own in ([flat] if "algo" in flat else before) if "algo" in own]
    prefixes = {registry.namespace(str(algo)) for algo in algos}
    for key in flat:
        owner, dot, _ = key.partition(".")
        if dot and algos and owner not in prefixes:
            raise UserError(
                f"{path}: {where}.{key} is a setting of {owner} and has no effect on "
                f"{_either(algos)}. Remove it, or set it where it is meant for {owner}."
            )
    return flat


def _either(names: Iterable[Any]) -> str:
    return " or ".join(map(str, dict.fromkeys(names)))


def _check(suite: Suite, raw: Mapping[str, Any]) -> None:
    path, labels = suite.path, list(raw["axes"])
    for metric in (suite.metric, *suite.also):
        if metric not in SUITE_METRICS:
            known = suggest(str(metric), SUITE_METRICS)
            raise UserError(f"{path}: unknown metric '{metric}'. {known}")
    for where, names in (("rows", [suite.rows]), ("columns", suite.columns)):
        for name in names:
            if name not in labels:
                raise UserError(
                    f"{path}: '{name}' in {where} is not an axis. {suggest(str(name), labels)}"
                )
    for name in labels:
        hidden = name not in (suite.rows, *suite.columns, "seed")
        if hidden and len({plan.labels[name] for plan in suite.plans}) > 1:
            raise UserError(
                f"{path}: the axis '{name}' is in neither rows nor columns, so a table would "
                "average over it as over seeds. Add it to columns."
            )
    for source in suite.paper:
        if source not in sources():
            known = suggest(str(source), sources())
            raise UserError(f"{path}: there are no paper numbers of '{source}'. {known}")
    key = "runs" if suite.scale == "paper" else "runs-small"
    if raw.get(key) != len(suite.plans):
        raise UserError(
            f"{path}: {key} = {raw.get(key)}, but it expands to {len(suite.plans)} runs. Correct "
            "the axes or the number."
        )


def _fits(number: PaperNumber, labels: Mapping[str, Label]) -> bool:
    """Return whether a number belongs to a run: they agree in the labels that both have."""
    return all(labels[name] == value for name, value in number.labels.items() if name in labels)
