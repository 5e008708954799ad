"""The report as Markdown, with its figures as files."""

from __future__ import annotations

from fedsuite.report.document import (
    Block,
    Bold,
    Code,
    Document,
    Fold,
    Paragraph,
    Picture,
    ReportTable,
)


def render(document: Document) -> str:
    """Return a document as Markdown."""
    parts = [f"# {_safe(document.title)}"]
    if document.banner:
        parts.append(f"> **{_safe(document.banner)}**")
    for section in document.sections:
        parts += [f"## {_safe(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _safe(block.text)
    if isinstance(block, Code):
        return f"```sh\n{block.text}\n```"
    if isinstance(block, Picture):
        image = f"![{_safe(block.alt).replace(']', ')')}](figures/{block.name}.png)"
        return "\n\n".join(filter(None, [image, _safe(block.caption)]))
    if isinstance(block, Fold):
        return "\n\n".join([f"**{_safe(block.title)}**", *map(_block, block.blocks)])
    return table(block)


def table(block: ReportTable) -> str:
    """Return a table as Markdown."""
    rules = ["---" if left else "---:" for left in block.left_aligned]
    lines = [block.headings, rules, *block.rows]
    text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
    title = f"**{_safe(block.title)}**" if block.title else ""
    return "\n\n".join(part for part in (title, text, _safe(block.caption)) if part)


def _cell(text: str) -> str:
    safe = _safe(text).replace("|", "\\|").replace("\n", " ")
    return f"**{safe}**" if isinstance(text, Bold) else safe


def _safe(text: str) -> str:
    """Escape what Markdown would take for HTML."""
    return text.replace("<", "&lt;")
