"""From runs to a document, and from the document to files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedsuite.core.files import write_atomically
from fedsuite.records.reader import Collection, open_collection
from fedsuite.records.writer import make_folder
from fedsuite.report import curves, figures, html, markdown
from fedsuite.report.document import Block, Code, Document, Fold, Picture, Section, Table, Text
from fedsuite.report.means import own_means
from fedsuite.report.methods import diagnostics
from fedsuite.report.results import NONE, results_csv, results_tables, runs_csv, unit, value
from fedsuite.report.split import label_split

SMALL = (
    "Small scale: fewer rounds or less data than in the paper, to finish on a laptop. The numbers "
    "show how methods compare here; they do not reproduce the paper's."
)


def make_report(name: str, out: Path, results_dir: str = "runs") -> Path:
    """Write the report of a run, a suite or a folder; return the page."""
    collection = open_collection(name, results_dir)
    make_folder(out / "figures")
    before = _figures_of(out / "report.md")
    with figures.style_context():
        document = build(collection)
        drawn = {p.name: figures.svg(p.figure) for p in pictures(document)}
        for picture in pictures(document):
            path = out / "figures" / picture.name
            write_atomically(path.with_suffix(".png"), figures.png(picture.figure))
            text = figures.standalone(drawn[picture.name])
            write_atomically(path.with_suffix(".svg"), text.encode())
    _remove(out / "figures", before - set(drawn))
    write_atomically(out / "results.csv", results_csv(collection).encode())
    write_atomically(out / "runs.csv", runs_csv(collection).encode())
    write_atomically(out / "report.md", markdown.render(document).encode())
    write_atomically(out / "index.html", html.render(document, drawn).encode())
    return out / "index.html"


def build(collection: Collection) -> Document:
    """Lay out the report."""
    sections = [
        Section("Results", [*_in_short(collection), *results_tables(collection)]),
        Section("Accuracy by round", curves.by_round(collection)),
        Section("Accuracy by compute time", curves.by_seconds(collection)),
        Section("Rounds and seconds to target", curves.to_target(collection)),
        Section("Accuracy of each client", curves.per_client(collection)),
        Section("What the methods saw", [*own_means(collection), *diagnostics(collection)]),
        Section("Who had which labels", label_split(collection)),
        Section("Bytes moved", curves.bytes_moved(collection)),
        Section("Runs", _runs(collection)),
        Section("How to repeat this", _repeat(collection)),
    ]
    title = curves.tag(collection, collection.title)
    return Document(title, SMALL if collection.small else "", _named_apart(sections))


def pictures(document: Document) -> list[Picture]:
    """Return all figures of a document."""
    found: list[Picture] = []
    for section in document.sections:
        for block in section.blocks:
            inner = block.blocks if isinstance(block, Fold) else [block]
            found += [b for b in inner if isinstance(b, Picture)]
    return found


def _named_apart(sections: Sequence[Section]) -> list[Section]:
    """Number figures whose names come to the same, such as those of TINY and TINY*."""
    taken: set[str] = set()

    def apart(block: Block) -> Block:
        if isinstance(block, Fold):
            return replace(block, blocks=[apart(inner) for inner in block.blocks])
        if not isinstance(block, Picture):
            return block
        name, number = block.name, 1
        while name in taken:
            number += 1
            name = f"{block.name}-{number}"
        taken.add(name)
        return replace(block, name=name)

    return [replace(section, blocks=[apart(b) for b in section.blocks]) for section in sections]


def _figures_of(report: Path) -> set[str]:
    """Return the figures of an earlier report in this place."""
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    return set(re.findall(r"\]\(figures/([\w-]+)\.png\)", text))


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        for ending in (".png", ".svg"):
            (folder / f"{name}{ending}").unlink(missing_ok=True)


def _in_short(collection: Collection) -> list[Block]:
    states = Counter(run.state for run in collection.runs)
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    total = len(collection.runs)
    blocks: list[Block] = [Text(f"{total} run{'s' if total != 1 else ''}: {said}.")]
    notes = [collection.note] if collection.note else []
    return blocks + [Text(remark) for remark in (*notes, *collection.remarks)]


def _runs(collection: Collection) -> list[Block]:
    headings = ["run", collection.rows, "setting", "seed", "state", "rounds"]
    lines = []
    for run in collection.runs:
        place = [collection.row(run), collection.column(run)] if run.labels else [NONE, NONE]
        seed = str(run.seed) if run.seed is not None else NONE
        rounds = str(run.history[-1]["round"]) if run.history else NONE
        score = value(run, collection.metric)
        failed = run.summary.get("failed_replies") or 0
        note = run.note or (f"{failed} client replies left out" if failed else "")
        result = NONE if score is None else f"{score:.2f}"
        lines.append([run.name, *place, seed, run.state, rounds, result, note])
    return [Table([*headings, unit(collection.metric), "note"], lines)]


def _repeat(collection: Collection) -> list[Block]:
    blocks: list[Block] = [Code(collection.command)] if collection.command else []
    if collection.planned > len(collection.runs):
        some = f"{len(collection.runs)} of the {collection.planned} runs of this command"
        blocks.append(Text(f"Here are {some}, as --only picked them."))
    commands = [run.meta["command"] for run in collection.runs if run.meta.get("command")]
    if not commands:
        return [*blocks, Text("No run's settings can be read.")]
    lines = Code("\n".join(dict.fromkeys(commands)))
    blocks += [Fold(f"{len(commands)} runs, one by one", [lines]) if len(commands) > 1 else lines]
    seeds = sorted({str(run.seed) for run in collection.runs if run.seed is not None})
    blocks.append(Text(f"Seeds: {', '.join(seeds)}."))
    rows: dict[tuple[str, ...], int] = {}
    for run in collection.runs:
        if run.meta:
            versions = ", ".join(f"{k} {v}" for k, v in run.meta.get("versions", {}).items())
            facts = [run.meta.get(key, NONE) for key in ("machine", "engine", "python")]
            key = (*map(str, facts), versions)
            rows[key] = rows.get(key, 0) + 1
    table = [[*key, str(count)] for key, count in rows.items()]
    return [*blocks, Table(["machine", "engine", "Python", "versions", "runs"], table)]
