"""``python -m benchmarks.methods`` writes ``docs/evidence/methods.md`` and its figures.

All numbers are from the rows of the suites ``methods``, ``methods_apart`` and ``attacks``, and of
those that tried their rates, which ``python -m benchmarks.claims collect FOLDER`` takes in, and the
texts from ``docs/evidence/methods.toml``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.claims.rows import FOLDER, read
from benchmarks.methods.figures import draw_attacks, draw_methods
from benchmarks.methods.page import ATTACKS, METHODS, Page
from fedsuite.core.files import read_toml, write_atomically

EVIDENCE = FOLDER.parent
TEXTS, PAGE, IMAGES = EVIDENCE / "methods.toml", EVIDENCE / "methods.md", EVIDENCE / "images"


def page() -> Page:
    """Return the page of the committed texts and rows."""
    return Page(read_toml(TEXTS, "texts"), read)


def draw_figures(folder: Path) -> None:
    """Draw the page's figures from the committed rows."""
    draw_methods(read(METHODS), folder / "methods.svg")
    draw_attacks(read(ATTACKS), folder / "attacks.svg")


def main() -> int:
    """Write the page and its figures."""
    write_atomically(PAGE, page().text().encode())
    draw_figures(IMAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
