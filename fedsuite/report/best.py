"""Which cells of a column may be called best: those apart from the others beyond noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan

from fedsuite.metrics import LOWER
from fedsuite.report.cells import Cell
from fedsuite.report.statistics import difference_of_means

BEST, TIE = "best", "tie"
TIE_MARK = "≈"
LEAST_SEEDS = 2


def marks(column: Sequence[Cell], better: str) -> dict[str, str]:
    """Return by row which cells of a column are the best, or tie with it.

    The best is so called if the interval of its difference from every other excludes zero;
    otherwise it and those not apart from it tie. Nothing is marked if targets differ, or if
    seconds were measured on a busy machine; a method with one seed alone, or that missed the
    target with a seed, is left out.
    """
    rivals = [
        cell
        for cell in column
        if cell.mean is not None
        and not isnan(cell.mean)
        and not cell.missed
        and len(cell.by_seed) >= LEAST_SEEDS
    ]
    targets = {tuple(cell.targets) for cell in column if cell.runs}
    if not better or len(rivals) < 2 or len(targets) > 1 or any(cell.busy for cell in column):
        return {}
    sign = -1.0 if better == LOWER else 1.0
    best = max(rivals, key=lambda cell: sign * (cell.mean or 0.0))
    near = [cell for cell in rivals if cell is not best and not _is_apart(best, cell, sign)]
    return {cell.row: TIE for cell in (best, *near)} if near else {best.row: BEST}


def _is_apart(best: Cell, other: Cell, sign: float) -> bool:
    """Return whether the whole interval of the difference is on the better side of zero."""
    gap = difference_of_means(best.by_seed, other.by_seed)
    return gap.clear and sign * gap.mean > 0


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
