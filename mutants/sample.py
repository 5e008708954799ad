"""A sample of mutants, drawn by a seed: lines first, then one of a line's mutants."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from mutants.operators import Mutant, mutants_of


def all_mutants(root: Path, packages: Sequence[str], only: Sequence[str] = ()) -> list[Mutant]:
    """Return the mutants of all modules of some packages, or of those whose path is in ``only``."""
    found: list[Mutant] = []
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not only or any(name.startswith(prefix) for prefix in only):
                found += mutants_of(path.read_text(encoding="utf-8"), name)
    return found


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw ``count`` lines without replacement and a mutant of each; all lines if there are fewer.

    So a line with many operators weighs no more than one with a single call.
    """
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for mutant in mutants:
        by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    draw = random.Random(seed)
    lines = draw.sample(sorted(by_line), min(count, len(by_line)))
    return sorted((draw.choice(by_line[line]) for line in lines), key=lambda m: (m.path, m.line))
