"""Make a report: from runs to a document, and from the document to files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import invalid
from fedsuite.metrics import find_metric
from fedsuite.records.collection import Collection, open_collection
from fedsuite.records.folder import REPORT_PAGE, REPORT_RUNS
from fedsuite.report import class_scores, costs, curves, drawing, html, markdown, per_client
from fedsuite.report.cells import CPU_SHARE, NONE
from fedsuite.report.diagnostic_figures import diagnostics
from fedsuite.report.diagnostic_tables import mean_tables
from fedsuite.report.document import (
    Block,
    Code,
    Document,
    Fold,
    Paragraph,
    Picture,
    ReportTable,
    Section,
)
from fedsuite.report.label_distribution import label_distribution
from fedsuite.report.results import results_csv, results_tables, runs_csv

DIAGNOSTICS = "Diagnostics of the methods"
SMALL = (
    "Small scale: fewer rounds or less data than in the paper, to finish on a laptop. The numbers "
    "show how methods compare here; they do not reproduce the paper's."
)


def make_report(name: str, out: Path, results_dir: str = "runs") -> Path:
    """Write the report of a run, a suite or a folder into ``out``; return the page."""
    collection = open_collection(name, results_dir)
    files: dict[str, bytes] = {}
    with drawing.style_context():
        document = build(collection)
        drawn = {p.name: drawing.svg(p.figure) for p in pictures(document)}
        for picture in pictures(document):
            files[f"figures/{picture.name}.png"] = drawing.png(picture.figure)
            text = drawing.standalone(drawn[picture.name])
            files[f"figures/{picture.name}.svg"] = text.encode()
    files["results.csv"] = results_csv(collection).encode()
    files[REPORT_RUNS] = runs_csv(collection).encode()
    files["report.md"] = markdown.render(document).encode()
    files[REPORT_PAGE] = html.render(document, drawn).encode()
    try:
        _write(out, files)
    except OSError as error:
        reason = f"{error.strerror or error}. Choose a folder that you can write to."
        raise invalid("-o", out, reason) from None
    return out / REPORT_PAGE


def _write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a report's files, and remove the figures that only an earlier report had."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    before = _figures_of(out / "report.md")
    for path, content in files.items():
        write_atomically(out / path, content)
    for path in (f"figures/{name}.{kind}" for name in before for kind in ("png", "svg")):
        if path not in files:
            (out / path).unlink(missing_ok=True)


def build(collection: Collection) -> Document:
    """Return the report of a collection as a document."""
    sections = [
        Section("Results", [*_overview(collection), *results_tables(collection)]),
        Section("Accuracy by round", curves.by_round(collection)),
        Section("Accuracy by compute time", curves.by_seconds(collection)),
        Section("Rounds and compute time to target", costs.to_target(collection)),
        Section("Scores by class", class_scores.class_scores(collection)),
        Section("Accuracy per client", per_client.per_client(collection)),
        Section(DIAGNOSTICS, [*mean_tables(collection), *diagnostics(collection)]),
        Section("Label distribution per client", label_distribution(collection)),
        Section("Communication", costs.communication(collection)),
        Section("Runs", _runs(collection)),
        Section("Reproduce", _commands(collection)),
    ]
    title = collection.tag(collection.title)
    return Document(title, SMALL if collection.small else "", _number_pictures(sections))


def pictures(document: Document) -> list[Picture]:
    """Return all figures of a document."""
    found: list[Picture] = []
    for section in document.sections:
        for block in section.blocks:
            inner = block.blocks if isinstance(block, Fold) else [block]
            found += [b for b in inner if isinstance(b, Picture)]
    return found


def _number_pictures(sections: Sequence[Section]) -> list[Section]:
    """Number figures of the same file name, such as those of TINY and TINY*."""
    taken: set[str] = set()

    def numbered(block: Block) -> Block:
        if isinstance(block, Fold):
            return replace(block, blocks=[numbered(inner) for inner in block.blocks])
        if not isinstance(block, Picture):
            return block
        name, number = block.name, 1
        while name in taken:
            number += 1
            name = f"{block.name}-{number}"
        taken.add(name)
        return replace(block, name=name)

    return [replace(section, blocks=[numbered(b) for b in section.blocks]) for section in sections]


def _figures_of(report: Path) -> set[str]:
    """Return the names of an earlier report's figures."""
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    return set(re.findall(r"\]\(figures/([\w-]+)\.png\)", text))


def _overview(collection: Collection) -> list[Block]:
    states = Counter(run.state for run in collection.runs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    total = len(collection.runs)
    blocks: list[Block] = [Paragraph(f"{total} run{'s' if total != 1 else ''}: {counts}.")]
    notes = [collection.note] if collection.note else []
    notes += [*incomplete(collection), *expulsions(collection)]
    return blocks + [Paragraph(remark) for remark in (*notes, *collection.remarks)]


def incomplete(collection: Collection) -> list[str]:
    """Say how many runs that are done lack updates, scores or models of clients."""
    some = sum(bool(run.missing) for run in collection.runs)
    if not some:
        return []
    return [
        f"Of {len(collection.runs)} runs, {some} {'lacks' if some == 1 else 'lack'} something of "
        "the clients that were asked; the table of runs says what."
    ]


def expulsions(collection: Collection) -> list[str]:
    """Say in how many runs clients were expelled, and in how many of them honest ones."""
    some = [run for run in collection.runs if run.expulsions]
    wronged = [run for run in some if run.value("freeloader_fpr")]
    if not some:
        return []
    return [
        f"Clients were expelled in {len(some)} of {len(collection.runs)} runs, honest ones in "
        f"{len(wronged)}; the table of runs says whom."
    ]


def _runs(collection: Collection) -> list[Block]:
    headings = ["run", collection.rows, "setting", "seed", "state", "rounds"]
    metric, lines = find_metric(collection.metric), []
    for run in collection.runs:
        labels = [collection.row(run), collection.column(run)] if run.labels else [NONE, NONE]
        seed = str(run.seed) if run.seed is not None else NONE
        rounds = str(run.last_round) if run.history else NONE
        score = run.value(collection.metric)
        notes = [run.note, run.damage()]
        if run.expulsions:
            notes.append(f"expelled {run.expulsions}")
        if run.busy and run.cpu_share is not None:
            notes.append(
                f"busy machine: clients had {CPU_SHARE.in_unit(run.cpu_share):.0f} % of a core"
            )
        note = "; ".join(filter(None, notes))
        result = NONE if score is None else f"{score:.{metric.digits}f}"
        lines.append([run.name, *labels, seed, run.state, rounds, result, note])
    return [ReportTable([*headings, metric.heading, "note"], lines)]


def _commands(collection: Collection) -> list[Block]:
    blocks: list[Block] = [Code(collection.command)] if collection.command else []
    if collection.planned > len(collection.runs):
        some = f"{len(collection.runs)} of the {collection.planned} runs of this command"
        blocks.append(Paragraph(f"This report has {some}, as selected by --only."))
    commands = [run.meta["command"] for run in collection.runs if run.meta.get("command")]
    if not commands:
        return [*blocks, Paragraph("No run's settings can be read.")]
    lines = Code("\n".join(dict.fromkeys(commands)))
    blocks += [
        Fold(f"Commands of the {len(commands)} runs", [lines]) if len(commands) > 1 else lines
    ]
    seeds = sorted({str(run.seed) for run in collection.runs if run.seed is not None})
    blocks.append(Paragraph(f"Seeds: {', '.join(seeds)}."))
    rows: dict[tuple[str, ...], int] = {}
    for run in collection.runs:
        if run.meta:
            versions = ", ".join(f"{k} {v}" for k, v in run.meta.get("versions", {}).items())
            machine = [run.meta.get(key, NONE) for key in ("machine", "engine", "python")]
            key = (*map(str, machine), versions)
            rows[key] = rows.get(key, 0) + 1
    table = [[*key, str(count)] for key, count in rows.items()]
    return [*blocks, ReportTable(["machine", "engine", "Python", "versions", "runs"], table)]
