"""The runs of a suite on this machine: their names and keys, and the manifest that lists them.

A run's key is a hash of its resolved settings (not of where it runs) and of the code that decides
its results; its folder's name ends in the key's first digits. So a run that is done is never
repeated, and one whose settings or code have changed is a new one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.config import RUNTIME_KEYS, RunConfig
from fedsuite.core.files import read_document
from fedsuite.core.installation import SUITES
from fedsuite.core.plugins import reference_of
from fedsuite.core.settings import UserError, kebab
from fedsuite.core.text import counted
from fedsuite.metrics import METRICS
from fedsuite.records.checks import check_config
from fedsuite.records.collection import PaperNumber
from fedsuite.records.folder import RunFolder
from fedsuite.records.reader import DAMAGE, read_summary
from fedsuite.suites.code_version import code_version
from fedsuite.suites.definition import Label, Plan, Suite, describe_labels
from tasks.dataset_cache import is_local, load_dataset
from tasks.datasets import is_path
from tasks.own_files import content_version

DIGITS = 8
CODE_DIGITS = 16


@dataclass(frozen=True)
class Job:
    """A run with its labels, its key and its settings, which name its folder."""

    labels: dict[str, Label]
    key: str
    config: RunConfig

    @property
    def name(self) -> str:
        """The run's name, and its folder's."""
        return self.config.run_name

    @property
    def code(self) -> str:
        """The fingerprint of the code that decides its results."""
        return _code(self.config)[:CODE_DIGITS]

    @property
    def files(self) -> RunFolder:
        """The run's folder, by its files."""
        return RunFolder.of(self.config)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.files.path

    @property
    def done(self) -> bool:
        """Whether the run has ended without failing, and its record can be read."""
        files = self.files
        try:
            check_config(read_document(files.config_file), files.config_file.name)
            return files.state_with(read_summary(files)).done
        except DAMAGE:
            return False

    @property
    def begun(self) -> bool:
        """Whether there is a run to resume."""
        return self.files.exists


def plan_jobs(
    suite: Suite, chosen: Sequence[Plan], results: Path, data_root: str
) -> tuple[list[Job], list[Job]]:
    """Return the chosen runs, and all that the manifest lists, which adds those begun earlier.

    Invalid settings of a chosen run are refused; other runs that have some are left out.
    """
    settings = {"data-root": data_root, "results-dir": str(results / suite.name)}
    configs = {id(plan): suite.resolve(plan, settings) for plan in chosen}
    try:
        refuse_missing_data((c for c in configs.values() if is_path(c.dataset)), fetch=False)
    except UserError:  # keys need the files; name what else is missing with them
        refuse_missing_data(configs.values())
        raise
    selected, listed = [], []
    for plan in suite.plans:
        try:
            job = _job(plan, configs.get(id(plan)) or suite.resolve(plan, settings))
        except UserError:
            if plan in chosen:
                raise
            continue
        selected += [job] if plan in chosen else []
        listed += [job] if plan in chosen or job.begun else []
    _refuse_twins(suite, listed)
    return selected, listed


def refuse_missing_data(configs: Iterable[RunConfig], fetch: bool = True) -> None:
    """Refuse to start if datasets of runs cannot be opened, and name them all at once.

    Those of the hub are fetched, unless they are only to be looked for here.
    """
    problems = {}
    for task in {config.dataset: config.task for config in configs}.values():
        try:
            open_data = load_dataset if fetch else is_local
            open_data(task.dataset, task.data_root, columns=task.columns)
        except UserError as error:
            problems[task.dataset] = str(error)
        except Exception:  # of a dataset from outside: its runs tell, and others continue
            continue
    if problems:
        data = f"The data of {counted(len(problems), 'dataset')} cannot be opened"
        told = "\n".join(f"- {name}: {problem}" for name, problem in problems.items())
        raise UserError(f"{data}, so that nothing was started.\n{told}")


def manifest(suite: Suite, jobs: Sequence[Job], data_root: str) -> dict[str, Any]:
    """Return the document that tells a report what the runs beside it are."""
    metric = METRICS[suite.metric]
    also = [METRICS[name] for name in suite.also]
    numbers = suite.numbers()
    return {
        "name": suite.stem,
        "title": suite.title,
        "note": suite.note,
        "scale": suite.scale,
        "metric": suite.metric,
        "better": metric.better,
        "unit": metric.unit,
        "also": [{"metric": m.name, "better": m.better, "unit": m.unit} for m in also],
        "rows": suite.rows,
        "columns": suite.columns,
        "command": suite_command(suite, data_root),
        "planned": len(suite.plans),
        "runs": [
            {"name": job.name, "labels": job.labels, "key": job.key, "code": job.code}
            for job in jobs
        ],
        "paper": [_document(n) for n in numbers if n.metric == suite.metric],
        "paper_also": [
            {"metric": n.metric, **_document(n)} for n in numbers if n.metric != suite.metric
        ],
    }


def suite_command(suite: Suite, data_root: str, *options: str) -> str:
    """Return the command that runs the suite, as typed into a shell."""
    if suite.sweep:
        return shlex.join(["fedsuite", *suite.sweep, *options])
    shipped = suite.path.parent == SUITES
    words = ["fedsuite", "suite", suite.stem if shipped else str(suite.path)]
    words += ["--scale", suite.scale] if suite.small else []
    words += ["--data-root", data_root] if data_root else []
    return shlex.join([*words, *options])


def run_key(config: RunConfig) -> str:
    """Return the hash of what decides a run's results."""
    runtime = {kebab(name) for name in RUNTIME_KEYS}
    settings = {key: value for key, value in sorted(config.flat().items()) if key not in runtime}
    parts = [settings, _code(config)]
    if is_path(config.dataset):
        parts.append(content_version(Path(config.data_root, config.dataset)))
    text = json.dumps(parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _code(config: RunConfig) -> str:
    return code_version(config.algo, *_outside(config))


def _outside(config: RunConfig) -> list[str]:
    """Return where a run's dataset, model and partition are, as far as they are not ours."""
    fields = [f for f in dataclasses.fields(config) if f.metadata.get("others")]
    named = {f.name: getattr(config, f.name) for f in fields}
    ours = {name for f in fields for name in f.metadata["choices"]}
    found = (reference_of(key, name) for key, name in named.items() if name not in ours)
    return [reference for reference in found if reference]


def run_name(labels: Mapping[str, Label], key: str) -> str:
    """Return a folder name that people can read and that tells all runs apart."""
    words = [str(value) for name, value in labels.items() if name != "seed"]
    words += [f"s{labels['seed']}", key[:DIGITS]]
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-.") for word in words)


def _job(plan: Plan, config: RunConfig) -> Job:
    labels = {name: value for name, value in plan.labels.items() if name != "seed"}
    labels["seed"] = config.seed
    key = run_key(config)
    config = dataclasses.replace(config, run_name=run_name(labels, key))
    return Job(labels, key, config)


def _refuse_twins(suite: Suite, jobs: Sequence[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        if job.name in seen:
            raise UserError(
                f"{suite.path}: {describe_labels(seen[job.name].labels)} and "
                f"{describe_labels(job.labels)} are the same run. Change the settings of one or "
                "leave it out."
            )
        seen[job.name] = job


def _document(number: PaperNumber) -> dict[str, Any]:
    return {
        "labels": number.labels,
        "value": number.value,
        "std": number.std,
        "target": number.target,
        "source": number.source,
    }
