"""Write the page of all methods from the rows of their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.claims.rows import Row, by_seed, matching
from benchmarks.methods.rates import GLOBAL, NONE, PERSONAL, columns, rate, rates_table
from benchmarks.methods.rules import Scores, Sides, by_mean, scores, sides, standing
from benchmarks.report import table
from fedsuite.report.statistics import deviation, mean

METHODS, APART, ATTACKS = "methods", "methods_apart", "attacks"
RATES, RATES_APART, RATES_ATTACKED = "methods_lr", "methods_apart_lr", "attacks_lr"
FEDAVG, LOCAL, NO_ATTACK = "fedavg", "local", "none"
WORST = "personal_worst_tenth"
# Run later than the others and on another machine: their seconds cannot be compared with FedAvg's.
TIMED_APART = ("krum", "multi-krum")
ReadRows = Callable[[str], Sequence[Row]]


@dataclass(frozen=True)
class Page:
    """The texts of the page and the rows that its tables and sentences are made of."""

    document: Mapping[str, Any]
    read: ReadRows

    def text(self) -> str:
        """Return the whole page."""
        texts = self.document
        tables, tuned = (METHODS, APART, ATTACKS), (RATES, RATES_APART, RATES_ATTACKED)
        found = {name: self.read(name) for name in (*tables, *tuned)}
        methods, apart, attacks = (found[name] for name in tables)
        parts = [texts["title"], texts["introduction"]]
        parts += ["## Which method when", texts["rule"], when(methods, attacks)]
        if not methods:
            parts.append(texts["not-run"])
        else:
            parts += ["## All methods", texts["methods"], _figure(texts, "methods")]
        for name in columns(methods, "data"):
            parts += [f"### {name}", texts["data"].get(name, ""), methods_table(methods, name)]
        parts.append(missing_columns(methods, texts["data"]))
        parts += self._apart(apart)
        if attacks:
            parts += ["## Attacks", texts["attacks"], _figure(texts, "attacks")]
            parts += [attacks_table(attacks), "### Who is expelled", texts["expelled"]]
            parts += [expelled_table(attacks)]
        parts += self._rates(*(found[name] for name in tuned))
        parts += ["## Where the numbers come from", texts["origin"], origin(found)]
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def _apart(self, rows: Sequence[Row]) -> list[str]:
        """Return the section of methods that other data can tell from FedAvg, if it was run."""
        if not rows:
            return []
        described = self.document["data-apart"]
        parts = ["## FedNova and FedBN where they are not FedAvg", self.document["apart"]]
        for name in columns(rows, "data"):
            parts += [f"### {name}", described.get(name, ""), against_fedavg(rows, name)]
            parts.append(methods_table(rows, name))
        return [*parts, missing_columns(rows, described)]

    def _rates(
        self, methods: Sequence[Row], apart: Sequence[Row], attacked: Sequence[Row]
    ) -> list[str]:
        """Return the section of the learning rates that were tried."""
        parts = [
            part
            for rows in (methods, apart)
            for name in columns(rows, "data")
            for part in (f"### {name}: rates", rates_table(matching(rows, {"data": name})))
        ]
        if attacked:
            parts += ["### Attacks: rates", rates_table(attacked)]
        return (
            ["## Learning rates that were tried", self.document["rates"], *parts] if parts else []
        )


def missing_columns(methods: Sequence[Row], planned: Iterable[str]) -> str:
    """Say which data have no runs yet, if others have."""
    there = columns(methods, "data")
    missing = [name for name in planned if there and name not in there]
    return f"Not run yet: {', '.join(missing)}." if missing else ""


def when(methods: Sequence[Row], attacks: Sequence[Row]) -> str:
    """Write, for every setting, who is ahead and at what cost: by rule, not by taste."""
    lines = []
    for name in columns(methods, "data"):
        lines.append(f"- **{name}, one model for all.** {_advice(methods, name, GLOBAL, FEDAVG)}")
        lines.append(
            f"- **{name}, a model for each client.** {_advice(methods, name, PERSONAL, LOCAL)}"
        )
    for name in columns(attacks, "attack"):
        title = "no attack" if name == NO_ATTACK else name
        lines.append(f"- **{title}.** {_defence(attacks, name)}")
    return "\n".join(lines)


def against_fedavg(rows: Sequence[Row], data: str) -> str:
    """Write who is ahead by each accuracy that more than one method has."""
    titles = {GLOBAL: "One model for all", PERSONAL: "A model for each client"}
    return "\n".join(
        f"- **{title}.** {_advice(rows, data, metric, FEDAVG)}"
        for metric, title in titles.items()
        if len(scores(rows, {"data": data}, metric)) > 1
    )


def _advice(rows: Sequence[Row], data: str, metric: str, reference: str) -> str:
    found = scores(rows, {"data": data}, metric)
    first = standing(found).first
    cheap = min(
        first,
        key=lambda m: (
            _mean(rows, m, data, _bytes),
            m in TIMED_APART,
            _mean(rows, m, data, cpu),
            m,
        ),
    )
    sentences = [_first(found)]
    if len(first) > 1:
        sentences.append(f"Of these {cheap} sends the fewest bytes.")
    if reference in found:
        sentences.append(_against(sides(found, reference), reference))
    return " ".join(sentences)


def _defence(rows: Sequence[Row], attack: str) -> str:
    found = scores(rows, {"attack": attack}, GLOBAL)
    sentences = [_first(found)]
    if FEDAVG in found:
        sentences.append(_against(sides(found, FEDAVG), FEDAVG))
    if attack != NO_ATTACK:
        calm = scores(rows, {"attack": NO_ATTACK}, GLOBAL)
        lost = {m: _average(calm, m) - _average(found, m) for m in found if m in calm}
        if FEDAVG in lost:
            sentences.append(f"FedAvg loses {100 * lost[FEDAVG]:.1f} points to it.")
    return " ".join(sentences)


def _first(found: Scores) -> str:
    place = standing(found)
    best = f"{place.best} has the highest mean, {100 * _average(found, place.best):.1f} %"
    level = [f"{m} {100 * _average(found, m):.1f} %" for m in place.level]
    return f"{best}; level with it: {', '.join(level)}." if level else f"{best}, alone."


def _against(both: Sides, reference: str) -> str:
    ahead = ", ".join(both.ahead) or "none"
    behind = ", ".join(both.behind) or "none"
    return f"Clearly ahead of {reference}: {ahead}; clearly behind: {behind}."


def methods_table(rows: Sequence[Row], data: str) -> str:
    """Write accuracies, compute and bytes of every method on one dataset, best first."""
    own = matching(rows, {"data": data})
    of_global, of_clients = (scores(rows, {"data": data}, metric) for metric in (GLOBAL, PERSONAL))
    names = by_mean(of_global)
    names += [name for name in by_mean(of_clients) if name not in of_global]
    names += [name for name in columns(own, "algo") if name not in names]
    lines = []
    for name in names:
        labels = {"data": data, "algo": name}
        cells = [_cell(by_seed(rows, labels, m).values()) for m in (GLOBAL, PERSONAL, WORST)]
        compute = NONE if name in TIMED_APART else _ratio(rows, name, data, cpu)
        costs = [compute, _ratio(rows, name, data, _bytes)]
        lines.append([name, rate(matching(rows, labels)[0]), *cells, *costs])
    header = ("method", "lr", "global (%)", "personal (%)", "worst tenth (%)", "compute", "bytes")
    return table(header, lines)


def attacks_table(rows: Sequence[Row]) -> str:
    """Write each method's rate and its final accuracy under every attack, the best bold."""
    attacks = columns(rows, "attack")
    found = {attack: scores(rows, {"attack": attack}, GLOBAL) for attack in attacks}
    lines = [
        [name, _rates_of(rows, name), *(_marked(found[a], rows, a, name) for a in attacks)]
        for name in columns(rows, "algo")
    ]
    return table(("method", "lr", *attacks), lines)


def _rates_of(rows: Sequence[Row], name: str) -> str:
    return ", ".join(dict.fromkeys(rate(row) for row in matching(rows, {"algo": name})))


def _marked(found: Scores, rows: Sequence[Row], attack: str, name: str) -> str:
    cell = _cell(by_seed(rows, {"attack": attack, "algo": name}, GLOBAL).values())
    return f"**{cell}**" if found and name == by_mean(found)[0] else cell


def expelled_table(rows: Sequence[Row]) -> str:
    """Write the share of freeloaders, attackers and honest clients that TACO expels."""
    lines = []
    for attack in columns(rows, "attack"):
        labels = {"attack": attack, "algo": "taco"}
        metrics = ("freeloader_tpr", "attacker_tpr", "freeloader_fpr")
        lines.append(
            [attack, *(_cell(by_seed(rows, labels, metric).values()) for metric in metrics)]
        )
    header = ("attack", "freeloaders expelled (%)", "attackers expelled (%)", "honest expelled (%)")
    return table(header, lines)


def origin(suites: Mapping[str, Sequence[Row]]) -> str:
    """Say of each suite how many runs there are, and by what they were made."""
    lines = []
    for name, rows in suites.items():
        if not rows:
            continue
        facts = (", ".join(columns(rows, key)) for key in ("seed", "engine", "machine", "versions"))
        lost = sum(row["state"] == "failed" for row in rows)
        lines.append([f"[{name}.csv](runs/{name}.csv)", str(len(rows)), str(lost), *facts])
    header = ("rows", "runs", "diverged", "seeds", "engine", "machine", "versions")
    return table(header, lines)


def cpu(row: Row) -> float:
    """Return the clients' CPU seconds in a round."""
    seconds = float(row["client_compute_seconds"]) * float(row["cpu_share"] or 1.0)
    return seconds / int(row["rounds"])


def _bytes(row: Row) -> float:
    return (float(row["upload_bytes"]) + float(row["download_bytes"])) / int(row["rounds"])


def _mean(rows: Sequence[Row], method: str, data: str, cost: Callable[[Row], float]) -> float:
    return mean([cost(row) for row in matching(rows, {"data": data, "algo": method})])


def _ratio(rows: Sequence[Row], method: str, data: str, cost: Callable[[Row], float]) -> str:
    whole = [m for m in (method, FEDAVG) if matching(rows, {"data": data, "algo": m})]
    if FEDAVG not in whole or method not in whole:
        return NONE
    return f"{_mean(rows, method, data, cost) / _mean(rows, FEDAVG, data, cost):.2f}"


def _average(found: Scores, method: str) -> float:
    return mean(list(found[method].values()))


def _cell(values: Iterable[float]) -> str:
    shares = [100 * value for value in values]
    if not shares:
        return NONE
    spread = deviation(shares)
    return f"{mean(shares):.1f}" if spread is None else f"{mean(shares):.1f} ± {spread:.1f}"


def _figure(texts: Mapping[str, Any], name: str) -> str:
    caption = texts["captions"][name]
    return f"![{caption}](images/{name}.svg)\n\n{caption}"
