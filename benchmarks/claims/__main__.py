"""``python -m benchmarks.claims collect FOLDER ...`` takes in the finished runs of suites.

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
from benchmarks.claims.rows import FOLDER, collect, read
from fedsuite.core.files import read_toml, write_atomically

EVIDENCE = FOLDER.parent
CLAIMS, PAGE, IMAGES = EVIDENCE / "claims.toml", EVIDENCE / "papers.md", EVIDENCE / "images"


def page() -> Page:
    """Return the page of the committed claims and rows."""
    return Page(read_toml(CLAIMS, "claims"), read)


def main(argv: Sequence[str] | None = None) -> int:
    """Collect rows, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="take in the finished runs of suites")
    collecting.add_argument("suites", nargs="+", type=Path, metavar="FOLDER")
    commands.add_parser("write", help="write the page and its figures")
    arguments = parser.parse_args(argv)
    if arguments.command == "collect":
        for suite in arguments.suites:
            collect(suite)
    else:
        made = page()
        write_atomically(PAGE, made.text().encode())
        IMAGES.mkdir(exist_ok=True)
        for paper in made.document["paper"]:
            if paper.get("figure"):
                draw(paper, made.findings, IMAGES / paper["figure"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
