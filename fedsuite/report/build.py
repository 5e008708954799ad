"""Make a report: from runs to a document, and from the document to files."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import invalid
from fedsuite.metrics import find_metric
from fedsuite.records.collection import Collection, open_collection
from fedsuite.records.folder import REPORT_PAGE, REPORT_RUNS
from fedsuite.report import (
    class_scores,
    costs,
    curves,
    drawing,
    html,
    latex,
    markdown,
    per_client,
)
from fedsuite.report.cells import CPU_SHARE, NONE
from fedsuite.report.compare import BASELINE
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
    slug,
)
from fedsuite.report.label_distribution import label_distribution
from fedsuite.report.results import results_csv, results_tables, rounds_csv, runs_csv

RESULTS, DIAGNOSTICS = "Results", "Diagnostics of the methods"
RUNS, REPRODUCE = "Runs", "Reproduce"
FIGURES, TABLES = "figures", "tables"
SMALL = (
    "Small scale: fewer rounds or less data than in the paper, to finish on a laptop. The numbers "
    "show how methods compare here; they do not reproduce the paper's."
)


def make_report(
    name: str,
    out: Path,
    results_dir: str = "runs",
    *,
    paper_numbers: bool = False,
    against: str = "",
) -> Path:
    """Write the report of a run, a suite or a folder into ``out``; return the page.

    LaTeX tables have the paper's numbers only if asked for, and mark what is better or worse than
    the method ``against`` (by default fedavg, or the first).
    """
    collection = open_collection(name, results_dir)
    reference = _reference(collection, against)
    files: dict[str, bytes] = {}
    with drawing.style_context():
        document = build(collection)
        drawn = {}
        for picture in pictures(document):
            drawing.lay_out(picture.figure)
            drawn[picture.name] = drawing.svg(picture.figure)
            files[f"{FIGURES}/{picture.name}.png"] = drawing.png(picture.figure)
            files[f"{FIGURES}/{picture.name}.pdf"] = drawing.pdf(picture.figure)
            text = drawing.standalone(drawn[picture.name])
            files[f"{FIGURES}/{picture.name}.svg"] = text.encode()
    printed = collection if paper_numbers else replace(collection, paper=())
    tables = latex_tables(printed, document, reference)
    for table, block in tables.items():
        files[f"{TABLES}/{table}.tex"] = latex.table(block, table).encode()
    files["tables.tex"] = latex.document(tables, TABLES).encode()
    files["results.csv"] = results_csv(collection).encode()
    files["rounds.csv"] = rounds_csv(collection).encode()
    files[REPORT_RUNS] = runs_csv(collection).encode()
    files["report.md"] = markdown.render(document).encode()
    files[REPORT_PAGE] = html.render(document, drawn).encode()
    try:
        _write(out, files)
    except OSError as error:
        reason = f"{error.strerror or error}. Choose a folder that you can write to."
        raise invalid("-o", out, reason) from None
    return out / REPORT_PAGE


def _reference(collection: Collection, against: str) -> str:
    """Return the method that others are compared with in LaTeX tables."""
    methods = collection.row_names()
    if against and against not in methods:
        raise invalid("--against", against, f"these runs have {', '.join(methods)}.")
    return against or (BASELINE if BASELINE in methods else next(iter(methods), ""))


def latex_tables(
    collection: Collection, document: Document, reference: str
) -> dict[str, ReportTable]:
    """Return the tables that a paper may print, by file name: all but those of single runs."""
    found: dict[str, ReportTable] = {}
    for section in document.sections:
        blocks: Sequence[Block] = section.blocks
        if section.title == RESULTS:
            blocks = results_tables(collection, reference)
        elif section.title == DIAGNOSTICS:
            blocks = mean_tables(collection)
        for block in blocks if section.title not in (RUNS, REPRODUCE) else ():
            if isinstance(block, ReportTable):
                ascii_title = block.title.encode("ascii", "ignore").decode()
                found[_free_name(slug(section.title, ascii_title), found)] = block
    return found


def _write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a report's files, and remove figures and tables that only an earlier report had."""
    before = _files_of(out)
    for folder in (FIGURES, TABLES):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_atomically(out / path, content)
    for path in before:
        if path not in files:
            (out / path).unlink(missing_ok=True)


def build(collection: Collection) -> Document:
    """Return the report of a collection as a document."""
    sections = [
        Section(RESULTS, [*_overview(collection), *results_tables(collection)]),
        Section("Accuracy by round", curves.by_round(collection)),
        Section("Accuracy by compute time", curves.by_seconds(collection)),
        Section("Rounds and compute time to target", costs.to_target(collection)),
        Section("Scores by class", class_scores.class_scores(collection)),
        Section("Accuracy per client", per_client.per_client(collection)),
        Section(DIAGNOSTICS, [*mean_tables(collection), *diagnostics(collection)]),
        Section("Label distribution per client", label_distribution(collection)),
        Section("Communication", costs.communication(collection)),
        Section(RUNS, _runs(collection)),
        Section(REPRODUCE, _commands(collection)),
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
        name = _free_name(block.name, taken)
        taken.add(name)
        return replace(block, name=name)

    return [replace(section, blocks=[numbered(b) for b in section.blocks]) for section in sections]


def _free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken, with a number if need be."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)


def _files_of(out: Path) -> set[str]:
    """Return the figures and tables of an earlier report."""

    def names(file: str, pattern: str) -> list[str]:
        path = out / file
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        return re.findall(pattern, text)

    figures = names("report.md", rf"\]\({FIGURES}/([\w-]+)\.png\)")
    tables = names("tables.tex", rf"\\input{{{TABLES}/([\w-]+)}}")
    drawn = {f"{FIGURES}/{name}.{kind}" for name in figures for kind in ("png", "svg", "pdf")}
    return drawn | {f"{TABLES}/{name}.tex" for name in tables}


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
