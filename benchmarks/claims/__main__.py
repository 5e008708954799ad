"""``python -m benchmarks.claims collect FOLDER ...`` takes in the finished runs of suites.

They join the rows that are there, and replace those of the same runs.

``python -m benchmarks.claims check`` names the suites of which some rows were made by other code
than what is here now, and ends with 1 if there are any.

``python -m benchmarks.claims write`` writes ``docs/evidence/papers.md`` and its figures from what
was taken in and ``docs/evidence/claims.toml``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.figures import draw
from benchmarks.claims.page import Page
from benchmarks.claims.rows import FOLDER, ROUNDS, collect, read, stale
from fedsuite.core.files import read_toml, write_atomically

EVIDENCE = FOLDER.parent
CLAIMS, PAGE, IMAGES = EVIDENCE / "claims.toml", EVIDENCE / "papers.md", EVIDENCE / "images"


def page() -> Page:
    """Return the page of the committed claims and rows."""
    return Page(read_toml(CLAIMS, "claims"), read)


def check(folder: Path = FOLDER) -> int:
    """Print of each suite how many of its rows the code that is here has made."""
    counts = {}
    for file in sorted(folder.glob("*.csv")):
        if not file.name.endswith(ROUNDS):
            rows = read(file.stem, folder)
            counts[file.stem] = len(stale(rows))
            print(f"{file.stem}: {len(rows) - counts[file.stem]} of {len(rows)} by this code")
    return int(any(counts.values()))


def draw_figures(made: Page, folder: Path) -> None:
    """Draw the figure of every paper that has one."""
    for paper in made.document["paper"]:
        if paper.get("figure"):
            draw(paper, made.findings, folder / paper["figure"])


def main(argv: Sequence[str] | None = None) -> int:
    """Collect rows, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="take in the finished runs of suites")
    collecting.add_argument("suites", nargs="+", type=Path, metavar="FOLDER")
    commands.add_parser("check", help="name rows that other code has made")
    commands.add_parser("write", help="write the page and its figures")
    arguments = parser.parse_args(argv)
    if arguments.command == "collect":
        for suite in arguments.suites:
            collect(suite)
    elif arguments.command == "check":
        return check()
    else:
        made = page()
        write_atomically(PAGE, made.text().encode())
        IMAGES.mkdir(exist_ok=True)
        draw_figures(made, IMAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
