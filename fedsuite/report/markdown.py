"""The report as Markdown, its figures as files beside it."""

from __future__ import annotations

from fedsuite.report.document import Block, Bold, Code, Document, Fold, Picture, Table, Text


def render(document: Document) -> str:
    """Write a document."""
    parts = [f"# {document.title}"]
    if document.banner:
        parts.append(f"> **{document.banner}**")
    for section in document.sections:
        parts += [f"## {section.title}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Code):
        return f"```sh\n{block.text}\n```"
    if isinstance(block, Picture):
        return f"![{block.alt.replace(']', ')')}](figures/{block.name}.png)"
    if isinstance(block, Fold):
        return "\n\n".join([f"**{block.title}**", *map(_block, block.blocks)])
    return table(block)


def table(block: Table) -> str:
    """Write a table."""
    rules = ["---" if left else "---:" for left in block.in_words]
    lines = [block.headings, rules, *block.rows]
    text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
    title = f"**{block.title}**" if block.title else ""
    return "\n\n".join(part for part in (title, text, block.caption) if part)


def _cell(text: str) -> str:
    safe = text.replace("|", "\\|").replace("\n", " ")
    return f"**{safe}**" if isinstance(text, Bold) else safe
