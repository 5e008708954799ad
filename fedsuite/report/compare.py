"""Compare methods side by side, paired by seed and setting: is a difference more than noise?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedsuite.config import FOLLOWS_ALGO
from fedsuite.core.settings import UserError, invalid, suggest
from fedsuite.metrics import HIGHER, LOWER, ROUND_SCORES, TO_TARGET, find_metric
from fedsuite.records.checks import is_number
from fedsuite.records.collection import METHOD, Collection, lay_out, open_collection
from fedsuite.records.reader import Run
from fedsuite.report.cells import busy_note, target_text, targets_of, values_by_seed
from fedsuite.report.comparison_result import Compared, Comparison, SettingCompared
from fedsuite.report.grouping import group_by
from fedsuite.report.significance import examine
from fedsuite.report.statistics import Difference, paired_difference

BASELINE = "fedavg"
ONE_POINT = 1.0


def compare(
    names: Sequence[str], results_dir: str, metric: str = "", against: str = "", by: str = ""
) -> Compared:
    """Compare methods, or the values of the key ``by``, in every setting that their runs share."""
    collection, left_out = gather(names, results_dir)
    collection = group_by(collection, by) if by else collection
    metric = metric or collection.metric
    methods = collection.row_names()
    if against and f"{by}={against}" in methods:
        against = f"{by}={against}"
    if against and against not in methods:
        raise invalid("--against", against, f"these runs have {', '.join(methods)}.")
    scored = scored_methods(collection, metric)
    _refuse_nothing(collection, metric, scored, f"values of {by}" if by else "methods")
    notes = [f"left out: {run.name}, {run.state}. {run.note}" for run in left_out]
    settings = [_compare_in(collection, at, here, metric, against) for at, here in scored.items()]
    notes += collection.remarks
    return Compared(collection, metric, _tested(settings, metric), notes, by or METHOD)


def _tested(settings: Sequence[SettingCompared], metric: str) -> list[SettingCompared]:
    """Add what tests say, corrected for all comparisons that are shown."""
    gap = ONE_POINT if find_metric(metric).share else None
    family = [row.differences for at in settings for row in at.rows if row.differences]
    found = iter(examine(family, gap))
    return [
        replace(
            at,
            rows=[
                replace(row, evidence=next(found)) if row.differences else row for row in at.rows
            ],
        )
        for at in settings
    ]


def _compare_in(
    collection: Collection, column: str, here: Sequence[str], metric: str, against: str
) -> SettingCompared:
    """Compare the methods that have the metric in one setting."""
    reference = against or (BASELINE if BASELINE in here else here[0] if here else "")
    if reference not in here:
        why = f"No finished run has {against if here else metric} here."
        return SettingCompared(column, reference, [], [why])
    if len(here) == 1:
        why = f"Only {reference} ran here: there is nothing to compare it with."
        return SettingCompared(column, reference, [], [why])
    rows = compare_column(collection, column, reference, metric)
    notes = [
        *methods_without(collection, column, metric),
        *unequal_settings(collection, column, reference),
        *measurement_notes(collection, column, metric),
    ]
    return SettingCompared(column, reference, rows, notes)


def gather(names: Sequence[str], results_dir: str) -> tuple[Collection, list[Run]]:
    """Collect the finished runs of runs and folders; return the runs left out beside them."""
    opened = [open_collection(name, results_dir) for name in names]
    runs = {run.folder: run for collection in opened for run in collection.runs}
    done = [run for run in runs.values() if run.done]
    left_out = [run for run in runs.values() if not run.done]
    if len(done) < 2:
        states = "; ".join(f"{run.name}: {run.state}" for run in left_out)
        raise UserError(
            f"A comparison needs two finished runs, and there is {len(done)}. "
            + (f"Not finished: {states}." if states else "Give more runs, or a folder of runs.")
        )
    if len(opened) == 1 and opened[0].of_suite:
        return replace(opened[0], runs=done), left_out
    return lay_out("compare", done), left_out


def scored_methods(collection: Collection, metric: str) -> dict[str, list[str]]:
    """Return the methods that have the metric in each setting."""
    return {
        column: [r for r in collection.row_names() if by_seed(collection, r, column, metric)]
        for column in collection.column_names()
    }


def _refuse_nothing(
    collection: Collection, metric: str, scored: dict[str, list[str]], what: str
) -> None:
    """Refuse to compare if no setting has two methods, or values, with the metric."""
    if not any(scored.values()):
        fields = {k for run in collection.runs for k, v in run.summary.items() if is_number(v)}
        raise UserError(f"No finished run has the metric '{metric}'. {suggest(metric, fields)}")
    if all(len(here) < 2 for here in scored.values()):
        who = "; ".join(f"{', '.join(here) or 'none'} in {at}" for at, here in scored.items())
        raise UserError(
            f"No two {what} ran in the same setting, so there is nothing to compare: {who}."
        )


def compare_column(
    collection: Collection, column: str, reference: str, metric: str
) -> list[Comparison]:
    """Compare every method with the reference in one setting."""
    scores = {row: by_seed(collection, row, column, metric) for row in collection.row_names()}
    better = better_direction(collection, metric)
    rows = []
    for row, own in scores.items():
        differences = [
            own[seed] - scores[reference][seed] for seed in own if seed in scores[reference]
        ]
        pair = [*collection.usable(row, column), *collection.usable(reference, column)]
        obstacle = _obstacle(pair, metric)
        if row == reference:
            rows.append(Comparison(row, list(own.values()), None, "the reference"))
        elif own and obstacle:
            text = f"not comparable: {obstacle}"
            rows.append(Comparison(row, list(own.values()), None, text))
        elif own:
            difference = paired_difference(differences) if differences else None
            text = verdict(difference, better)
            rows.append(Comparison(row, list(own.values()), difference, text, differences))
    return rows


def _obstacle(runs: Sequence[Run], metric: str) -> str:
    """Return why two methods' runs cannot be compared by a metric; "" if they can."""
    described = find_metric(metric)
    if described in TO_TARGET:
        if len(targets_of(runs)) != 1:
            return "another target"
        if any(run.value(metric) is None for run in runs):
            return "a seed missed the target"
    if described.is_time and any(run.busy for run in runs):
        return "measured on a busy machine"
    return ""


def by_seed(collection: Collection, row: str, column: str, metric: str) -> dict[object, float]:
    """Return a method's score per seed, the mean where a seed was run twice."""
    return values_by_seed(collection.usable(row, column), metric)


def better_direction(collection: Collection, metric: str) -> str:
    """Return which is better, "higher", "lower" or neither: as a suite says, else by the table."""
    if collection.of_suite:
        stated = {**collection.also, collection.metric: collection.better}
        if metric in stated:
            return stated[metric]
    return find_metric(metric).better


def verdict(difference: Difference | None, better: str = HIGHER) -> str:
    """Return in words what the interval of a difference supports, and no more."""
    if difference is None:
        return "no common seed, nothing to pair"
    if difference.low is None and difference.pairs > 1:
        return f"the same difference in all {difference.pairs} seeds: too few to tell"
    if difference.low is None:
        return "one common seed: cannot be told from noise, run more seeds"
    if difference.low == difference.high == 0.0:
        return f"the same in all {difference.pairs} common seeds"
    if not difference.clear:
        return "may be noise: the interval includes zero"
    more = difference.mean > 0
    if not better:
        return f"{HIGHER if more else LOWER}: the interval excludes zero"
    word = "better" if more == (better == HIGHER) else "worse"
    return f"{word}: the interval excludes zero"


def unequal_settings(collection: Collection, column: str, reference: str) -> list[str]:
    """Describe settings that differ only because their defaults depend on the algorithm."""
    notes = []
    base = collection.usable(reference, column)
    for row in collection.row_names():
        runs = collection.usable(row, column)
        for key in FOLLOWS_ALGO if runs and base else ():
            own, other = runs[0].config.get(key), base[0].config.get(key)
            if own != other:
                notes.append(
                    f"{row} ran with {key}={own}, {reference} with {key}={other}: unless that is "
                    "intended, set it for both."
                )
    return notes


def measurement_notes(collection: Collection, column: str, metric: str) -> list[str]:
    """Describe what numbers depend on: what runs lack, the target, a busy machine."""
    described, notes = find_metric(metric), []
    by_row = {row: collection.usable(row, column) for row in collection.row_names()}
    lacking = [run for runs in by_row.values() for run in runs if run.missing]
    notes += [f"{run.name}: {run.missing}." for run in lacking]
    if described in TO_TARGET:
        for row, runs in by_row.items():
            reached = sum(run.value(metric) is not None for run in runs)
            if 0 < reached < len(runs):
                some = f"{reached} of {len(runs)} runs"
                notes.append(f"{row} reached its target in {some}; the others are left out.")
        targets = target_text(targets_of(run for runs in by_row.values() for run in runs))
        notes.append(f"Target: {targets}.")
    if described.is_time:
        mark = "Some of these times"
        notes.append(busy_note((run for runs in by_row.values() for run in runs), mark))
    return [note for note in notes if note]


def methods_without(collection: Collection, column: str, metric: str) -> list[str]:
    """Describe which methods lack the metric, and which one they have instead."""
    here = [row for row in collection.row_names() if collection.usable(row, column)]
    without = [row for row in here if not by_seed(collection, row, column, metric)]
    if not without:
        return []
    other = ROUND_SCORES[-1].name
    known = [row for row in without if by_seed(collection, row, column, other)]
    hint = f" --metric {other} compares them." if known and metric != other else ""
    return [f"Without {find_metric(metric).title}: {', '.join(without)}.{hint}"]
