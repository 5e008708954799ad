"""The report as one HTML page without network or script."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape

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
from fedsuite.report.drawing import inline, pixels

CSS = """
:root { color-scheme: light dark; --ink: #1f2329; --soft: #59626d; --page: #ffffff;
  --panel: #f5f7f9; --line: #d5dae0; --warn: #7a4300; --warn-panel: #fff2dc; --link: #0a58a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adb8; --page: #12161b;
  --panel: #1b2128; --line: #343d47; --warn: #ffd596; --warn-panel: #3a2a10; --link: #7fb9f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
section { content-visibility: auto; contain-intrinsic-size: auto 60rem; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9rem; }
.banner { background: var(--warn-panel); color: var(--warn); border-left: 4px solid;
  padding: .6rem .8rem; margin: .8rem 0; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th.left, td.left { text-align: left; }
th:first-child, td:first-child { position: sticky; left: 0;
  background: var(--page); }
td.long { text-align: left; white-space: normal; min-width: 12rem; }
thead th { border-bottom: 2px solid var(--line); }
tbody tr:hover td { background: var(--panel); }
.caption { color: var(--soft); font-size: .85rem; margin: .4rem 0 0; }
.figures { display: grid; gap: 1rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; padding: .6rem; background: var(--panel); border-radius: .5rem; }
figure.wide { grid-column: 1 / -1; }
figure svg { color: var(--ink); display: block; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .8rem; line-height: 1.35; margin-top: .3rem; }
pre { background: var(--panel); padding: .8rem; border-radius: .5rem; overflow-x: auto;
  font-size: .85rem; }
summary { cursor: pointer; color: var(--link); }
details { margin: .6rem 0; }
"""
LONG_CELL = 24
LEFT = ' class="left"'
WIDE = 520


def render(document: Document, drawn: Mapping[str, str]) -> str:
    """Return a document as HTML; ``drawn`` holds its figures as SVG."""
    title = escape(document.title)
    banner = f'<p class="banner">{escape(document.banner)}</p>' if document.banner else ""
    links, sections = [], []
    for number, section in enumerate(document.sections, 1):
        links.append(f'<a href="#s{number}">{escape(section.title)}</a>')
        body = _blocks(section.blocks, drawn)
        sections.append(f'<section id="s{number}"><h2>{escape(section.title)}</h2>{body}</section>')
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{CSS}</style></head>\n<body><main>\n"
        f"<h1>{title}</h1>{banner}\n<nav>{''.join(links)}</nav>\n"
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def _blocks(blocks: Sequence[Block], drawn: Mapping[str, str]) -> str:
    """Return blocks as HTML; consecutive figures share a grid."""
    parts = []
    for pictures, group in itertools.groupby(blocks, lambda b: isinstance(b, Picture)):
        body = "\n".join(_block(block, drawn) for block in group)
        parts.append(f'<div class="figures">{body}</div>' if pictures else body)
    return "\n".join(parts)


def _block(block: Block, drawn: Mapping[str, str]) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Code):
        return f"<pre><code>{escape(block.text)}</code></pre>"
    if isinstance(block, Fold):
        body = _blocks(block.blocks, drawn)
        return f"<details><summary>{escape(block.title)}</summary>{body}</details>"
    if isinstance(block, Picture):
        labelled = f'<svg role="img" aria-label="{escape(block.alt)}"'
        picture = inline(drawn[block.name], block.name).replace("<svg", labelled, 1)
        wide = ' class="wide"' if pixels(drawn[block.name]) > WIDE else ""
        caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
        return f"<figure{wide}>{picture}{caption}</figure>"
    return _table(block)


def _table(table: ReportTable) -> str:
    left_aligned = table.left_aligned
    head = "".join(
        f'<th scope="col"{LEFT if left else ""}>{escape(heading)}</th>'
        for heading, left in zip(table.headings, left_aligned, strict=True)
    )
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, left_aligned))}</tr>" for row in table.rows)
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    return (
        f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>{caption}"
    )


def _cell(text: str, left: bool) -> str:
    inner = f"<strong>{escape(text)}</strong>" if isinstance(text, Bold) else escape(text)
    css_class = ' class="long"' if len(text) > LONG_CELL else LEFT if left else ""
    return f"<td{css_class}>{inner}</td>"
