"""Diagnostics of methods as figures: numbers that they record per client, by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsuite.core.client_ids import parse_clients
from fedsuite.metrics import find_metric
from fedsuite.records.collection import Collection
from fedsuite.records.reader import Run
from fedsuite.report import drawing
from fedsuite.report.document import Block, Fold, Paragraph, Picture, slug
from fedsuite.report.method_styles import BLUE, GREEN, ORANGE, RED, SKY, Style, styles_for
from fedsuite.report.statistics import mean
from tasks.partitions import group_of

Row = Mapping[str, Any]
SHOWN = 4
BAD = ("freeloaders", "attackers")
COMMON_FIELDS = frozenset(
    "round phase client status steps loss num_examples seconds upload_bytes accuracy correct "
    "weight reason macro_f1 balanced_accuracy auc class_accuracy".split()
)
GROUPS = {
    "A (10 % of the labels)": Style(BLUE, "-", "^"),
    "B (20 % of the labels)": Style(GREEN, "--", "s"),
    "C (50 % of the labels)": Style(ORANGE, ":", "D"),
    "all clients": Style(BLUE, "-", "o"),
    "honest": Style(BLUE, "-", "o"),
    "freeloaders": Style(RED, "-.", "X"),
    "attackers": Style(RED, ":", "P"),
}
MEANS = "Lines: mean over clients and seeds."
MEANS_AND_BANDS = f"{MEANS} Bands: minimum to maximum."
OVER_SEEDS = "Lines: mean over seeds. Bands: minimum to maximum."
COUPLINGS = {
    "reliability and accuracy": "reliability_coupling",
    "weight and accuracy": "contribution_coupling",
}


@dataclass(frozen=True)
class ClientCurve:
    """A field of ``clients.jsonl`` to be drawn by round, with its figure's title and y label.

    ``share`` marks a field that is 1 or 0 per client, drawn as a share of clients in per cent;
    ``limit`` is the setting that the algorithm compares the field with.
    """

    field: str
    title: str
    label: str
    share: bool = False
    limit: str = ""


CLIENT_CURVES: dict[str, tuple[ClientCurve, ...]] = {
    "taco": (ClientCurve("alpha", "coefficients", "coefficient α", limit="taco.kappa"),),
    "feda4": (
        ClientCurve("phi", "concentration", "concentration φ", limit="feda4.tau-conc"),
        ClientCurve("biased", "clients judged biased", "share of clients (%)", share=True),
        ClientCurve(
            "similarity", "direction", "cosine with mean trajectory", limit="feda4.tau-sim"
        ),
    ),
    "fedbac": (
        ClientCurve("reliability", "reliability", "reliability R"),
        ClientCurve("consensus", "consensus", "consensus C"),
    ),
    "fedadw": (
        ClientCurve("weight", "weights", "aggregation weight"),
        ClientCurve("ala_mean", "share of the global model", "mean ALA weight"),
    ),
}
NOTES = {
    "taco": "TACO: the correction coefficient of Eq. 7 by group of clients, and expelled clients.",
    "feda4": "FedA4: concentration of clients' predictions on the probe set, and direction of "
    "their updates. A client is biased if its concentration is at or above its limit, or its "
    "cosine at or below its limit.",
    "fedbac": "FedBaC: reliability and consensus of clients with the momentum, and their rank "
    "correlation (Spearman) with accuracy.",
    "fedadw": "FedADW: aggregation weights, discrepancy of a client's classes from uniform, and "
    "the share of the global model that clients take (1 = all).",
}


def diagnostics(collection: Collection) -> list[Block]:
    """Return a note and figures for every method that records diagnostics."""
    blocks: list[Block] = []
    without = []
    for row in collection.row_names():
        pictures: list[Picture] = []
        algo = ""
        for column in collection.column_names():
            runs = collection.usable(row, column)
            if runs:
                algo = str(runs[0].config["algo"])
                pictures += _pictures(collection, row, column, runs)
        if pictures:
            note = NOTES.get(algo, f"{row}: numbers recorded per client and round.")
            blocks.append(Paragraph(note))
            blocks += pictures[:SHOWN]
            if len(pictures) > SHOWN:
                more = pictures[SHOWN:]
                blocks.append(Fold(f"{len(more)} more figures of {row}", more))
        elif algo:
            without.append(row)
    if without:
        blocks.append(Paragraph(f"No diagnostics of their own: {', '.join(without)}."))
    return blocks or [Paragraph("No run has recorded a round yet.")]


def _pictures(collection: Collection, row: str, column: str, runs: Sequence[Run]) -> list[Picture]:
    algo = str(runs[0].config["algo"])
    lines = {run.name: trained(run) for run in runs}
    recorded = {key for rows in lines.values() for r in rows for key in r}
    client_curves: Sequence[ClientCurve] = CLIENT_CURVES.get(algo) or [
        ClientCurve(name, find_metric(name).title, find_metric(name).title)
        for name in sorted(recorded - COMMON_FIELDS)
    ]
    where = collection.tag(f"{row}, {column}")
    pictures = []
    for client_curve in client_curves:
        series = _by_round(runs, lines, client_curve)
        if series:
            limit = runs[0].config.get(client_curve.limit) if client_curve.limit else None
            limits = {f"limit {limit:g}": float(limit)} if limit is not None else {}
            title = f"{where}: {client_curve.title}"
            figure = drawing.lines(title, "round", client_curve.label, series, GROUPS, limits)
            ends = ", ".join(f"{name} {line[1][-1]:.2f}" for name, line in series.items())
            alt = f"{title} by round; in the last round {ends}."
            caption = MEANS if client_curve.share else MEANS_AND_BANDS
            name = slug(row, column, client_curve.title)
            pictures.append(Picture(name, alt, figure, caption))
    for draw in EXTRAS.get(algo, ()):
        pictures += draw(where, slug(row, column), runs, lines)
    return pictures


def trained(run: Run) -> list[Row]:
    """Return the lines of clients that trained, by round."""
    return [r for r in run.clients() if r.get("phase") == "train" and r.get("status") == "ok"]


def group(run: Run, client: int) -> str:
    """Return the group of a client: its group in TACO's partition, else honest or freeloader."""
    count = run.config["num-clients"]
    bad = {key: parse_clients(key, str(run.config.get(key, "")), count) for key in BAD}
    for key, clients in bad.items():
        if client in clients:
            return key
    if run.config["partition"] == "groups":
        letter = group_of(client, count)
        return next(name for name in GROUPS if name.startswith(letter))
    return "honest" if any(bad.values()) else "all clients"


def _by_round(
    runs: Sequence[Run], lines: Mapping[str, Sequence[Row]], client_curve: ClientCurve
) -> dict[str, drawing.Line]:
    values: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        for row in lines[run.name]:
            if isinstance(row.get(client_curve.field), int | float):
                name = group(run, row["client"])
                at = values.setdefault(name, {}).setdefault(row["round"], [])
                at.append((100.0 if client_curve.share else 1.0) * row[client_curve.field])
    series: dict[str, drawing.Line] = {}
    for name in (name for name in GROUPS if name in values):
        rounds = sorted(values[name])
        numbers = [values[name][r] for r in rounds]
        low = None if client_curve.share else [min(n) for n in numbers]
        high = None if client_curve.share else [max(n) for n in numbers]
        series[name] = (rounds, [mean(n) for n in numbers], low, high)
    return series


def _expelled(
    where: str, name: str, runs: Sequence[Run], lines: Mapping[str, Sequence[Row]]
) -> list[Picture]:
    """Draw the number of expelled clients by round; a client is expelled in its last round."""
    rounds = sorted({row["round"] for rows in lines.values() for row in rows})
    if not rounds:
        return []
    kinds = dict.fromkeys(_kind(run, row["client"]) for run in runs for row in lines[run.name])
    counts = {kind: [0.0] * len(rounds) for kind in kinds}
    for run in runs:
        ends: dict[int, int] = {}
        for row in lines[run.name]:
            ends[row["client"]] = max(row["round"], ends.get(row["client"], 0))
        for client in run.summary.get("expelled", ()):
            for index, number in enumerate(rounds):
                gone = number >= ends.get(client, 0)
                counts[_kind(run, client)][index] += gone / len(runs)
    series: dict[str, drawing.Line] = {k: (rounds, v, None, None) for k, v in counts.items()}
    title = f"{where}: clients expelled"
    figure = drawing.lines(title, "round", "clients, mean over seeds", series, GROUPS)
    figure.axes[0].set_ylim(-0.1, max(1.0, *(v[-1] for v in counts.values())) + 0.1)
    alt = f"{title}; at the end " + ", ".join(f"{k} {v[-1]:g}" for k, v in counts.items()) + "."
    return [Picture(f"{name}-expelled", alt, figure)]


def _kind(run: Run, client: int) -> str:
    found = group(run, client)
    return found if found in BAD else "honest"


def _couplings(
    where: str, name: str, runs: Sequence[Run], lines: Mapping[str, Sequence[Row]]
) -> list[Picture]:
    """Draw FedBaC's rank correlations by round, the mean over seeds."""
    styles = dict(zip(COUPLINGS, (Style(GREEN, "-", "D"), Style(SKY, "--", "o")), strict=True))
    series: dict[str, drawing.Line] = {}
    for label, field in COUPLINGS.items():
        tables = [dict(run.curve(field)) for run in runs if run.curve(field)]
        if tables:
            rounds = sorted(set.intersection(*(set(table) for table in tables)))
            numbers = [[table[r] for table in tables] for r in rounds]
            low, high = [min(n) for n in numbers], [max(n) for n in numbers]
            series[label] = (rounds, [mean(n) for n in numbers], low, high)
    if not series:
        return []
    title = f"{where}: coupling with accuracy"
    limits = {"no coupling": 0.0}
    figure = drawing.lines(title, "round", "Spearman correlation", series, styles, limits)
    ends = ", ".join(f"{k} {line[1][-1]:.2f}" for k, line in series.items())
    alt = f"{title}; in the last round {ends}."
    return [Picture(f"{name}-coupling", alt, figure, OVER_SEEDS)]


def _discrepancy(
    where: str, name: str, runs: Sequence[Run], lines: Mapping[str, Sequence[Row]]
) -> list[Picture]:
    """Draw FedADW's weight against discrepancy in the last round, a dot per client and seed."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for run in runs:
        last = max((row["round"] for row in lines[run.name]), default=0)
        for row in lines[run.name]:
            if row["round"] == last and "discrepancy" in row and "weight" in row:
                xs, ys = points.setdefault(f"seed {run.seed}", ([], []))
                xs.append(row["discrepancy"])
                ys.append(row["weight"])
    if not points:
        return []
    title = f"{where}: weight by discrepancy"
    x_label = "discrepancy from uniform classes (nats)"
    figure = drawing.scatter(title, x_label, "aggregation weight", points, styles_for(points))
    alt = f"{title}, a dot per client in the last round."
    return [Picture(f"{name}-discrepancy", alt, figure, "A dot per client in the last round.")]


Drawer = Callable[[str, str, Sequence[Run], Mapping[str, Sequence[Row]]], list[Picture]]
EXTRAS: dict[str, tuple[Drawer, ...]] = {
    "taco": (_expelled,),
    "fedbac": (_couplings,),
    "fedadw": (_discrepancy,),
}
