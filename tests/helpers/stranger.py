"""A package of somebody else: what the pages on adding something write, installed."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

from following import ROOT, blocks

PAGES = ("a-dataset", "a-model", "a-partition", "an-algorithm", "a-package")
PLACES = {  # of the algorithm's files, which its page writes into this repository
    "strategies/fedclip.py": "my_federated/strategy.py",
    "clients/fedclip.py": "my_federated/client.py",
    "my_fedclip.py": "my_federated/fedclip.py",
}
IMPORTS = {"clients.fedclip": "my_federated.client", "strategies.fedclip": "my_federated.strategy"}


def install(folder: Path) -> list[str]:
    """Install the package into a folder for ``sys.path``; return the words of its command."""
    pages = (blocks(ROOT / "docs" / f"adding-{page}.md") for page in PAGES)
    written = {block.title: block.text for page in pages for block in page}
    for title, text in written.items():
        if (place := PLACES.get(title, title)).startswith("my_federated/"):
            for old, new in IMPORTS.items():
                text = text.replace(old, new)
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text)
    project = tomllib.loads(written["pyproject.toml"])["project"]
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    info = folder / "my_federated-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return shlex.split(written["command"])[1:]
