"""Repeat runs and compare them with their record; ``fedsuite verify`` calls this."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedsuite.core.files import absolute_path
from fedsuite.core.processes import interrupted_once
from fedsuite.core.scratch import scratch_folder
from fedsuite.core.settings import RunFailed, UserError, invalid
from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedsuite.records.reader import Run as Record

BITS, ACCURACIES, NEITHER, NOT_REPEATED = "bits", "accuracies", "neither", "not repeated"


@dataclass(frozen=True)
class RunVerified:
    """What of a run its repetition matches: bits, accuracies or neither; ``note`` says more."""

    name: str
    matches: str
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether at least the accuracies match."""
        return self.matches in (BITS, ACCURACIES)


@dataclass(frozen=True)
class Verified:
    """The runs that were repeated, of ``total`` that are done."""

    runs: Sequence[RunVerified]
    total: int

    @property
    def exit_status(self) -> int:
        """0 if at least the accuracies of every repeated run match, else 1."""
        return 0 if all(run.good for run in self.runs) else 1

    @cached_property
    def table(self) -> DataFrame:
        """A row per repeated run: its name, what matches, a note."""
        from pandas import DataFrame

        return DataFrame(map(dataclasses.asdict, self.runs), columns=["name", "matches", "note"])

    def __str__(self) -> str:
        """Return in a sentence how many runs match."""
        counts = {kind: sum(run.matches == kind for run in self.runs) for kind in KINDS}
        found = "; ".join(f"{KINDS[kind]} {count}" for kind, count in counts.items() if count)
        return f"Repeated {len(self.runs)} of {self.total} finished runs: {found}."

    def __repr__(self) -> str:
        return str(self.table)


KINDS = {
    BITS: "same bits in",
    ACCURACIES: "same accuracies, other bits in",
    NEITHER: "another result in",
    NOT_REPEATED: "unrepeatable here in",
}


def verify(
    name: str | os.PathLike[str],
    *,
    sample: int = 0,
    seed: int = 0,
    engine: str | None = None,
    data_root: str | os.PathLike[str] = "",
    results_dir: str | os.PathLike[str] = DEFAULT_RESULTS,
    progress: bool = True,
) -> Verified:
    """Repeat finished runs from their recorded settings, and say what of them this machine gets.

    ``name`` is a run, a suite, a folder of runs or a bundle. ``sample`` is how many of its runs to
    repeat, drawn by ``seed``; 0: all. They are written to a temporary folder, never to their own.
    ``data_root`` is where the data are, if not where they were.
    """
    from fedsuite.records.collection import open_collection
    from fedsuite.terminal.console import make_console

    if not isinstance(sample, int) or sample < 0:
        raise invalid("--sample", sample, "it takes a whole number of at least 1.")
    done = [
        run for run in open_collection(os.fspath(name), os.fspath(results_dir)).runs if run.done
    ]
    if not done:
        raise UserError(f"'{os.fspath(name)}' has no finished run, so there is nothing to repeat.")
    count = min(sample or len(done), len(done))
    chosen = sorted(random.Random(seed).sample(range(len(done)), count))
    console = make_console(quiet=not progress)
    verified = []
    with interrupted_once():
        for number, run in enumerate((done[place] for place in chosen), 1):
            console.print(f"{number} of {count}: {run.name}", markup=False, highlight=False)
            found = _verify(run, engine, os.fspath(data_root))
            note = f" ({found.note})" if found.note else ""
            line = f"  {KINDS[found.matches].removesuffix(' in')}{note}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
            verified.append(found)
    return Verified(verified, len(done))


def _verify(run: Record, engine: str | None, data_root: str) -> RunVerified:
    from fedsuite.records.digests import model_digests
    from fedsuite.records.folder import RunFolder
    from fedsuite.records.reader import read_run

    with scratch_folder() as scratch:
        try:
            folder = _repeat(run, scratch, engine, data_root)
        except (UserError, RunFailed) as error:
            return RunVerified(run.name, NOT_REPEATED, str(error).strip().splitlines()[-1])
        now, digests = read_run(folder), model_digests(RunFolder(folder))
    recorded = model_digests(run.files)
    unequal = difference(run, now)
    notes = [unequal] if unequal else []
    if not recorded:
        notes.append("there is no model to compare")
    elif recorded == digests and unequal:
        notes.append("the models are bit-identical, so the record was changed or is damaged")
    elif recorded != digests:
        notes += _other_versions(run, now)
    same = BITS if recorded and recorded == digests else ACCURACIES
    return RunVerified(run.name, NEITHER if unequal else same, "; ".join(notes))


def _repeat(run: Record, scratch: Path, engine: str | None, data_root: str) -> Path:
    """Run a run's recorded settings in a folder of its own; return the new run's folder."""
    from fedsuite.api.start import Target
    from fedsuite.engines.contract import EngineOptions
    from fedsuite.engines.start import start_run
    from fedsuite.engines.table import prepare_engine
    from fedsuite.terminal.console import make_console

    recorded = run.files.read_config()
    config = dataclasses.replace(
        recorded,
        results_dir=str(scratch),
        run_name=run.name,
        data_root=str(absolute_path(data_root)) if data_root else recorded.data_root,
        resume=False,
        superlink="",
        tracking="none",
    )
    settled = Target(engine, "", 0, 0.0, "").settled_engine
    with prepare_engine(settled) as prepared:
        options = EngineOptions(0, 0.0, prepared, "")
        return start_run(config, settled, options, make_console(quiet=True))


def difference(recorded: Record, now: Record) -> str:
    """Say how the accuracies of two runs differ, by round and in the summary; "" if they do not.

    Of the summary only what was recorded counts: earlier versions recorded less.
    """
    from fedsuite.metrics import ROUND_SCORES, find_metric
    from fedsuite.records.checks import is_number

    pairs: dict[str, tuple[float, object]] = {}
    for metric in ROUND_SCORES:
        then, here = dict(recorded.curve(metric.name)), dict(now.curve(metric.name))
        if then.keys() != here.keys():
            return f"{metric.title} was recorded in other rounds"
        pairs |= {f"{metric.title} of round {r}": (then[r], here[r]) for r in then}
    for name, value in recorded.summary.items():
        if name.endswith("accuracy") and is_number(value):
            pairs[find_metric(name).title] = value, now.summary.get(name)
    if not pairs:
        return "no accuracy was recorded"
    what = max(pairs, key=lambda name: _gap(*pairs[name]))
    before, after = pairs[what]
    text = f"{after:.4f}" if is_number(after) else "missing"
    differ = _gap(before, after) > 0
    return f"{what} is {text} here, {before:.4f} in the record" if differ else ""


def _gap(then: float, here: object) -> float:
    """Return how far a number, which may be missing, is from a recorded one."""
    return abs(here - then) if isinstance(here, int | float) else math.inf


def _other_versions(run: Record, now: Record) -> list[str]:
    """Say which packages had other versions when a run was recorded."""
    then, here = run.meta.get("versions", {}), now.meta.get("versions", {})
    changed = [f"{name} {then[name]}" for name in then if then[name] != here.get(name)]
    return [f"recorded with {', '.join(changed)}"] if changed else []
