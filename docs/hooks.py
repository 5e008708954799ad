"""Hooks of the documentation's build: pages of the repository's root, links to source files.

README and its neighbours are pages of the site too. On GitHub a page links to source files and
folders by relative paths. The site has neither: a link to a module goes to its section of the API
reference if it has one, other such links become plain text. A link to a file that does not exist
fails the build, as links between pages do.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT_PAGES = {
    "README.md": "getting-started.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
SOURCES = {page: f"../{name}" for name, page in ROOT_PAGES.items()}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)\s*$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|data|attr|exc):(?=<code>)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of the repository's root."""
    for name, page in ROOT_PAGES.items():
        path = Path(config["docs_dir"]).parent / name
        if path.exists():
            files.append(File.generated(config, page, abs_src_path=str(path)))
    return files


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
        text, (target, mark, anchor) = match["text"], match["target"].partition("#")
        if not target or "://" in target or target.startswith(("mailto:", "/")):
            return match[0]
        source = SOURCES.get(page, page)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        path = path.removeprefix("../docs/")
        if path.startswith("../"):
            if not (docs / path).exists():
                raise PluginError(f"{page}: the link '{match['target']}' leads to no file")
            name = path.removeprefix("../")
            module = name.removesuffix(".py").replace("/", ".")
            if module in modules:
                path, mark, anchor = modules[module], "#", module
            elif name in ROOT_PAGES:
                path = ROOT_PAGES[name]
            else:
                return text
        elif (docs / path).is_dir():
            return text
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(page) or '.')}{mark}{anchor})"

    parts, position = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(resolve, markdown[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, LINK.sub(resolve, markdown[position:])])
