"""Hooks of the documentation's build: links to source files, and roles in docstrings.

On GitHub a page links to source files and folders by relative paths. The site has neither: a link
to a module goes to its section of the API reference if it has one, other such links become plain
text. A link to a file that does not exist fails the build, as links between pages do.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)\s*$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|data|attr|exc):(?=<code>)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Resolve links to what the site does not have."""
    docs = Path(config["docs_dir"])
    return resolve_links(markdown, page.file.src_uri, docs, documented(docs / "reference"))


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Drop the roles that docstrings put before a name."""
    return ROLE.sub("", html)


def documented(reference: Path) -> dict[str, str]:
    """Return module -> the page of the API reference that documents it."""
    return {
        module: f"reference/{page.name}"
        for page in sorted(reference.glob("*.md"))
        for module in DIRECTIVE.findall(page.read_text(encoding="utf-8"))
    }


def resolve_links(markdown: str, page: str, docs: Path, modules: dict[str, str]) -> str:
    """Return a page whose links to files of the repository lead somewhere on the site."""

    def resolve(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"].split("#")[0]
        if not target or "://" in target or target.startswith(("mailto:", "/")):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if not path.startswith("../"):
            return text if (docs / path).is_dir() else match[0]
        if not (docs / path).exists():
            raise PluginError(f"{page}: the link '{match['target']}' leads to no file")
        module = path.removeprefix("../").removesuffix(".py").replace("/", ".")
        if module not in modules:
            return text
        here = posixpath.relpath(modules[module], posixpath.dirname(page) or ".")
        return f"[{text}]({here}#{module})"

    parts, position = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(resolve, markdown[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, LINK.sub(resolve, markdown[position:])])
