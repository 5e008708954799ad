"""The best learning rate of each method in each column of a table, from a suite that tunes it.

``python -m benchmarks.best_lr runs/baselines_personal_lr-small`` prints the mean over seeds for
every rate of the grid. With ``--into sim_configs/suites/baselines_personal.toml`` the choice also
becomes that suite's overrides, in place of earlier ones. Where a method's runs differ in more than
the rate, as pFedMe's two rates do, the best combination is chosen. Ties go to the smaller rate.

The choice is by the suite's metric. If that is final accuracy and the suite also has personal
accuracy, methods that score clients with models of their own are chosen by the latter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import table
from fedsuite import registry
from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError
from fedsuite.metrics import LOWER
from fedsuite.records.collection import UNIMPORTANT, Collection, open_collection
from fedsuite.records.folder import RunState
from fedsuite.records.reader import Run
from fedsuite.suites.definition import SCALES, Label, Suite, read_suite

TUNED = "lr"
OF_GLOBAL_MODEL, OF_CLIENTS = "final_accuracy", "personal_accuracy"
MARK, END = "# Chosen by benchmarks.best_lr", "# End of what benchmarks.best_lr has chosen."
Place = tuple[tuple[str, Label], ...]  # labels of a column of the table


@dataclass(frozen=True)
class Candidate:
    """A method with one combination of the settings that were tried, and its values by seed."""

    algo: str
    place: Place
    settings: dict[str, Any]
    values: list[float | None]

    def mean(self) -> float | None:
        """Return the mean over seeds, rounded so that ties are ties; None if a seed has none."""
        known = [value for value in self.values if value is not None]
        return round(fmean(known), 10) if len(known) == len(self.values) else None


def candidates(collection: Collection) -> list[Candidate]:
    """Group a tuning suite's runs; refuse one that has not ended.

    A run that failed, as one that diverges does, has no value, and its rate is not chosen.
    """
    undone = [run for run in collection.runs if not (run.done or run.state is RunState.FAILED)]
    missing = collection.planned - len(collection.runs) + len(undone)
    if missing:
        raise UserError(
            f"{collection.name}: {missing} of {collection.planned} runs are not done. Run the "
            f"suite to its end: {collection.command}"
        )
    groups: dict[tuple[str, Place], list[Run]] = {}
    for run in collection.runs:
        groups.setdefault((run.config["algo"], _place(collection, run)), []).append(run)
    found = []
    for (algo, place), runs in groups.items():
        keys, metric = _tried(runs), metric_of(collection, algo)
        tried: dict[tuple[Any, ...], list[Run]] = {}
        for run in runs:
            tried.setdefault(tuple(run.config[key] for key in keys), []).append(run)
        for values in sorted(tried):
            scores = [run.value(metric) if run.done else None for run in tried[values]]
            settings = dict(zip(keys, values, strict=True))
            found.append(Candidate(algo, place, settings, scores))
    return found


def metric_of(collection: Collection, algo: str) -> str:
    """Return what a method is chosen by: what it is for, where a suite measures both."""
    both = collection.metric == OF_GLOBAL_MODEL and OF_CLIENTS in collection.also
    return OF_CLIENTS if both and registry.find(algo).client.personal else collection.metric


def choose(tried: Iterable[Candidate], better: str) -> dict[tuple[str, Place], Candidate]:
    """Return the best candidate of each method and column; of equal ones the first, the smaller."""
    sign = -1.0 if better == LOWER else 1.0
    best: dict[tuple[str, Place], Candidate] = {}
    for one in tried:
        mean, held = one.mean(), best.get((one.algo, one.place))
        if mean is None:
            continue
        if held is None or sign * mean > sign * (held.mean() or 0.0):
            best[one.algo, one.place] = one
    return best


def grid_tables(tried: Sequence[Candidate], better: str) -> str:
    """Write a table per column: a method's means by rate, the chosen one in bold."""
    best, texts = choose(tried, better), []
    rates = sorted({one.settings[TUNED] for one in tried})
    for place in dict.fromkeys(one.place for one in tried):
        rows: dict[str, dict[float, str]] = {}
        for one in (one for one in tried if one.place == place):
            mean = one.mean()
            text = "failed" if mean is None else f"{mean:.2f}"
            chosen = best.get((one.algo, place)) is one
            rows.setdefault(_name(one), {})[one.settings[TUNED]] = f"**{text}**" if chosen else text
        lines = [[name, *(cells.get(rate, "") for rate in rates)] for name, cells in rows.items()]
        heading = ", ".join(str(label) for _, label in place) or "all"
        texts.append(f"{heading}\n\n{table(('method', *map(str, rates)), lines)}")
    return "\n\n".join(texts)


def override_tables(suite: Suite, best: Mapping[tuple[str, Place], Candidate]) -> str:
    """Write a suite's overrides: the runs of a method and column get what was chosen for it."""
    found: dict[tuple[Place, tuple[tuple[str, Any], ...]], list[Label]] = {}
    for plan in suite.plans:
        for (algo, place), one in best.items():
            here = plan.settings["algo"] == algo
            if here and all(plan.labels.get(name) == label for name, label in place):
                rows = found.setdefault((place, tuple(one.settings.items())), [])
                rows += [label for label in [plan.labels[suite.rows]] if label not in rows]
    tables = []
    for (place, settings), rows in found.items():
        labels = {suite.rows: rows, **dict(place)}
        when = ", ".join(f"{name} = {_toml(label)}" for name, label in labels.items())
        lines = [f"{key} = {_toml(value)}" for key, value in settings]
        head = "[[small.override]]" if suite.small else "[[override]]"
        tables.append("\n".join([head, f"when = {{ {when} }}", *lines]))
    return "\n\n".join(tables)


def write_overrides(file: Path, scale: str, collection: Collection) -> None:
    """Replace what an earlier call added to a suite file, if it is a suite still with the choice.

    What stands before and after the earlier choice is kept.
    """
    text = file.read_text(encoding="utf-8")
    before, _, chosen = text.partition(MARK)
    after = chosen.partition(END)[2].strip()
    own = before.rstrip() + (f"\n\n{after}" if after else "") + "\n"
    best = choose(candidates(collection), collection.better)
    seeds = sorted({run.config["seed"] for run in collection.runs})
    head = f"{MARK} of {collection.name}, seeds {', '.join(map(str, seeds))}."
    tables = override_tables(_read(own, file, scale), best)
    whole = f"{own}\n{head}\n{tables}\n\n{END}\n"
    _read(whole, file, scale)
    write_atomically(file, whole.encode())


def _read(text: str, file: Path, scale: str) -> Suite:
    """Read the text of a suite file that is not written yet."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        return read_suite(draft, scale)


def _place(collection: Collection, run: Run) -> Place:
    hidden = (collection.rows, TUNED, "seed")
    return tuple((name, label) for name, label in run.labels.items() if name not in hidden)


def _tried(runs: Sequence[Run]) -> list[str]:
    """Return the settings in which runs differ, the rate first."""
    keys = [key for key in runs[0].config if key not in UNIMPORTANT]
    differing = [key for key in keys if len({str(run.config[key]) for run in runs}) > 1]
    return [TUNED, *(key for key in differing if key != TUNED)]


def _name(one: Candidate) -> str:
    others = [f"{key} {value}" for key, value in one.settings.items() if key != TUNED]
    return ", ".join([one.algo, *others])


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]" if len(value) > 1 else _toml(value[0])
    return f'"{value}"' if isinstance(value, str) else str(value)


def main(words: Sequence[str] | None = None) -> int:
    """Print the grid, and write the choice if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="the tuning suite's folder")
    parser.add_argument("--into", type=Path, help="a suite file that gets the choice as overrides")
    options = parser.parse_args(words)
    try:
        collection = open_collection(options.folder)
        print(grid_tables(candidates(collection), collection.better))
        if options.into:
            write_overrides(options.into, SCALES[collection.small], collection)
    except UserError as error:
        print(f"best_lr: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
