"""The learning rates of the page: those that were tried, the chosen ones, and a run's own."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from benchmarks.claims.rows import Row, matching
from benchmarks.report import table
from fedsuite import registry
from fedsuite.config import parse

GLOBAL, PERSONAL = "final_accuracy", "personal_accuracy"
NONE = "–"


def columns(rows: Iterable[Row], label: str) -> list[str]:
    """Return the values of a label in the order of the suite."""
    return list(dict.fromkeys(row[label] for row in rows))


def rates_table(rows: Sequence[Row]) -> str:
    """Write what each method reached with each rate that was tried, the chosen one bold."""
    rates = sorted(columns(rows, "lr"), key=float)
    values, chosen = reached(rows), chosen_rates(rows).values()
    tried = {(row["algo"], row["lr"]) for row in rows}

    def cell(place: tuple[str, str]) -> str:
        if place not in values:
            return "failed" if place in tried else NONE
        text = f"{100 * values[place]:.1f}"
        return f"**{text}**" if place in chosen else text

    lines = [[label, *(cell((label, lr)) for lr in rates)] for label in columns(rows, "algo")]
    return table(("method", *rates), lines)


def chosen_rates(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return the label and the rate of each method's best run, of equal ones the smaller rate."""
    values, best = reached(rows), dict[str, tuple[str, str]]()
    for place in sorted(values, key=lambda place: float(place[1])):
        method = base_of(place[0])
        if method not in best or values[place] > values[best[method]]:
            best[method] = place
    return best


def reached(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    """Return the accuracy of every finished run, by its label and its rate."""
    done = [row for row in rows if row["state"] == "finished" and row[chosen_by(row["algo"])]]
    return {(row["algo"], row["lr"]): round(float(row[chosen_by(row["algo"])]), 10) for row in done}


def base_of(label: str) -> str:
    """Return the method of a label, which may also name a second setting that was tried."""
    return label.partition(",")[0]


def chosen_by(label: str) -> str:
    """Return the metric by which a method's rate is chosen: what the method is for."""
    return PERSONAL if registry.find(base_of(label)).client.personal else GLOBAL


def rate(row: Row) -> str:
    """Return the learning rate of a run; a command leaves it out where it is the default."""
    given = [w.partition("=")[2] for w in shlex.split(row["command"]) if w.startswith("lr=")]
    return given[0] if given else str(parse({}).lr)


def at_other_rates(made: Iterable[Row], tried: Sequence[Row], label: str) -> list[Row]:
    """Return the runs whose rate is not the one that was chosen for their method.

    The choice is by column, the value of a label, where the tuning has that label, else for all.
    """
    by_column = any(label in row for row in tried)

    def chosen(row: Row) -> str | None:
        asked = matching(tried, {label: row[label]}) if by_column else tried
        place = chosen_rates(asked).get(row["algo"])
        return place and place[1]

    return [row for row in made if rate(row) != chosen(row)]
