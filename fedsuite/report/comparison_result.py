"""How methods, or the values of a setting, compare: as objects, a table, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedsuite.records.collection import METHOD, Collection
from fedsuite.report.significance import Evidence
from fedsuite.report.statistics import Difference, deviation, mean

if TYPE_CHECKING:
    from pandas import DataFrame

NUMBERS = (
    *("mean", "std", "difference", "low", "high"),
    *("p_t", "p_t_holm", "p_wilcoxon", "p_wilcoxon_holm", "cohens_d", "seeds_for_one_point"),
)


@dataclass(frozen=True)
class Comparison:
    """One method in one setting against the reference.

    ``differences`` are those over common seeds, ``evidence`` is what tests make of them.
    """

    method: str
    values: Sequence[float]
    difference: Difference | None
    verdict: str
    differences: Sequence[float] = ()
    evidence: Evidence | None = None


@dataclass(frozen=True)
class SettingCompared:
    """The methods in one setting; ``notes`` say what numbers depend on, or why there are none."""

    name: str
    reference: str
    rows: Sequence[Comparison]
    notes: Sequence[str]


@dataclass(frozen=True)
class Compared:
    """How methods, or the values of the key ``by``, compare in every setting that runs share."""

    collection: Collection
    metric: str
    settings: Sequence[SettingCompared]
    notes: Sequence[str]
    by: str = METHOD

    @cached_property
    def table(self) -> DataFrame:
        """A row per setting and method, in the metric's unit.

        ``low`` and ``high`` are the ends of the 95 % interval of the difference from the reference,
        ``p_...`` two-sided p-values over the ``pairs`` of common seeds, ``..._holm`` corrected for
        all comparisons of the table.
        """
        from pandas import DataFrame

        return DataFrame(self.rows, columns=self.columns).astype(dict.fromkeys(NUMBERS, float))

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        first, (centre, spread, *rest) = ("setting", self.by, "seeds"), NUMBERS
        return [*first, centre, spread, "reference", "pairs", *rest, "verdict"]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, with None where there is no number."""
        return [self._row(at, row) for at in self.settings for row in at.rows]

    def _row(self, at: SettingCompared, row: Comparison) -> dict[str, Any]:
        gap, found = row.difference, row.evidence
        numbers = [gap.mean, gap.low, gap.high] if gap else [None] * 3
        tests = (
            [found.t, found.t_holm, found.wilcoxon, found.wilcoxon_holm] if found else [None] * 4
        )
        size = [found.effect, found.seeds] if found else [None] * 2
        head = [at.name, self._value(row.method), len(row.values), mean(row.values)]
        middle = [deviation(row.values), self._value(at.reference), gap.pairs if gap else None]
        cells = [*head, *middle, *numbers, *tests, *size, row.verdict]
        return dict(zip(self.columns, cells, strict=True))

    def _value(self, name: str) -> str:
        """Return a row's name without its key: ``0.1`` of ``lr=0.1``."""
        return name.removeprefix(f"{self.by}=")

    def document(self) -> dict[str, Any]:
        """Return all of it as ``fedsuite compare --json`` prints it."""
        settings = [
            {"setting": at.name, "reference": self._value(at.reference), "notes": [*at.notes]}
            for at in self.settings
        ]
        head = {"metric": self.metric, "by": self.by, "notes": [*self.notes]}
        return {**head, "settings": settings, "rows": self.rows}

    def csv(self) -> str:
        """Return the table as ``fedsuite compare --csv`` prints it."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def show(self) -> None:
        """Print curves, tables and notes, as ``fedsuite compare`` does."""
        from fedsuite.report.comparison_text import print_compared
        from fedsuite.terminal.console import make_console

        print_compared(self, make_console())

    @property
    def _brief(self) -> DataFrame:
        """The columns that fit a line."""
        return self.table[["setting", self.by, "seeds", *NUMBERS[:5], "verdict"]]

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return str(self._brief.to_html(index=False))
