"""Which cells of a column may be called best: those apart from the others beyond noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan

from fedsuite.metrics import LOWER
from fedsuite.report.cells import Cell
from fedsuite.report.statistics import difference_of_means, paired_difference

BEST, TIE = "best", "tie"
TIE_MARK = "≈"
BETTER_MARK, WORSE_MARK = "⁺", "⁻"
LEAST_SEEDS = 2


def marks_against(column: Sequence[Cell], reference: str, better: str) -> dict[str, str]:
    """Return by row which cells of a column are better or worse than the reference's.

    They are if the interval of the difference, paired over common seeds, excludes zero. Nothing is
    marked where :func:`marks` compares nothing.
    """
    rivals = _rivals(column, better)
    base = next((cell for cell in rivals if cell.row == reference), None)
    found: dict[str, str] = {}
    if base is None:
        return found
    for cell in rivals:
        seeds = [seed for seed in cell.by_seed if seed in base.by_seed]
        if cell is base or len(seeds) < LEAST_SEEDS:
            continue
        gap = paired_difference([cell.by_seed[seed] - base.by_seed[seed] for seed in seeds])
        if gap.clear:
            found[cell.row] = WORSE_MARK if (gap.mean > 0) == (better == LOWER) else BETTER_MARK
    return found


def marks(column: Sequence[Cell], better: str) -> dict[str, str]:
    """Return by row which cells of a column are the best, or tie with it.

    The best is so called if the interval of its difference from every other excludes zero;
    otherwise it and those not apart from it tie. Nothing is marked if targets differ, or if
    seconds were measured on a busy machine; a method with one seed alone, or that missed the
    target with a seed, is left out.
    """
    rivals = _rivals(column, better)
    if not rivals:
        return {}
    sign = -1.0 if better == LOWER else 1.0
    best = max(rivals, key=lambda cell: sign * (cell.mean or 0.0))
    near = [cell for cell in rivals if cell is not best and not _is_apart(best, cell, sign)]
    return {cell.row: TIE for cell in (best, *near)} if near else {best.row: BEST}


def _rivals(column: Sequence[Cell], better: str) -> list[Cell]:
    """Return the cells of a column that may be compared; none if fewer than two."""
    rivals = [
        cell
        for cell in column
        if cell.mean is not None
        and not isnan(cell.mean)
        and not cell.missed
        and len(cell.by_seed) >= LEAST_SEEDS
    ]
    targets = {tuple(cell.targets) for cell in column if cell.runs}
    refused = not better or len(targets) > 1 or any(cell.busy for cell in column)
    return [] if refused or len(rivals) < 2 else rivals


def _is_apart(best: Cell, other: Cell, sign: float) -> bool:
    """Return whether the whole interval of the difference is on the better side of zero."""
    gap = difference_of_means(best.by_seed, other.by_seed)
    return gap.clear and sign * gap.mean > 0


def explain_against(marked: Iterable[dict[str, str]], reference: str) -> str:
    """Return, as a sentence, what the marks against the reference mean; empty if there are none."""
    if not any(marked):
        return ""
    return (
        f"{BETTER_MARK}/{WORSE_MARK}: better or worse than {reference} (the 95 % t-interval of the "
        "difference, paired over seeds, excludes zero; no correction for the number of methods)."
    )


def explain(marked: Iterable[dict[str, str]], seeds: Sequence[int]) -> str:
    """Return, as sentences, what the marks of a table's columns mean; ``seeds``: of each cell."""
    if max(seeds) < LEAST_SEEDS:
        return "Nothing is called best: one seed cannot tell a difference from noise."
    kinds = {kind for marks in marked for kind in marks.values()}
    parts = []
    if BEST in kinds:
        parts.append("Bold: apart from every other method.")
    if TIE in kinds:
        parts.append(f"{TIE_MARK}: the best, or not apart from it.")
    if kinds:
        parts.append(
            "Apart: the 95 % t-interval of the difference of means excludes zero, paired where two "
            "seeds or more are shared, without a correction for the number of methods."
        )
    if min(seeds) < LEAST_SEEDS:
        parts.append("A method with one seed is not compared.")
    return " ".join(parts)
