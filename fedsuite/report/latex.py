"""Tables as LaTeX: a file each, with booktabs, and a document that shows them all."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from fedsuite.report.document import Bold, ReportTable

# Typeset by any engine with its usual fonts, so without the packages of other encodings.
SYMBOLS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "$": r"$\mathdollar$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # after a row's end they would begin an option
    "]": "{]}",
    "*": "{*}",
    "`": "{`}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "⁺": "$^{+}$",
    "⁻": "$^{-}$",
    "†": r"$\dagger$",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "ß": r"\ss{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
} | {character: f"\\{character}" for character in "{}&#%_"}
ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u ",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r ",
    "\u030b": "H ",
    "\u030c": "v ",
    "\u0327": "c ",
}
GREEK = re.compile(r"GREEK SMALL LETTER (\w+)")
DOCUMENT = r"""\documentclass{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""
# Boxes that shrink what is wider than a line, or longer than a page.
WIDE = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
TALL = r"\resizebox*{!}{.85\textheight}"
PAGE_ROWS = 48
TABLE = r"""%% \usepackage{booktabs,graphicx}
\begin{table}[htbp]
\centering
\caption{%(caption)s}
\label{tab:%(name)s}
\smallskip

%(box)s{%%
\begin{tabular}{%(columns)s}
\toprule
%(head)s \\
\midrule
%(rows)s
\bottomrule
\end{tabular}}
\end{table}
"""


def document(names: Iterable[str], folder: str) -> str:
    """Return a document that shows the tables of these names, which are files of a folder."""
    inputs = "\n".join(rf"\input{{{folder}/{name}}}" for name in names)
    return DOCUMENT % (inputs or "There are no tables.")


def table(block: ReportTable, name: str) -> str:
    """Return a table as a LaTeX float that fits on a page."""
    caption = block.caption[:1].upper() + block.caption[1:]
    title = "" if caption.startswith(block.title) else f"{block.title}. "
    return TABLE % {
        "caption": escape(title + caption),
        "name": name,
        "box": TALL if len(block.rows) > PAGE_ROWS else WIDE,
        "columns": "".join("l" if left else "r" for left in block.left_aligned),
        "head": " & ".join(map(_cell, block.headings)),
        "rows": "\n".join(" & ".join(map(_cell, row)) + r" \\" for row in block.rows),
    }


def _cell(text: str) -> str:
    sign = r"$-$" if re.match(r"-[\d.]", text) else ""
    escaped = sign + escape(text[1:] if sign else text)
    return rf"\textbf{{{escaped}}}" if isinstance(text, Bold) else escaped


def escape(text: str) -> str:
    """Write text so that LaTeX prints it, whatever it is; what it cannot print by its number."""
    composed = unicodedata.normalize("NFC", " ".join(text.split()))
    return "{}".join("".join(map(_escape, part)) for part in re.split("(?<=-)(?=-)", composed))


def _escape(character: str) -> str:
    if character in SYMBOLS:
        return SYMBOLS[character]
    if character.isascii() and character.isprintable():
        return character
    if greek := GREEK.fullmatch(unicodedata.name(character, "")):
        return "o" if greek[1] == "OMICRON" else rf"$\{greek[1].lower()}$"
    base, *marks = [*unicodedata.normalize("NFD", character)]
    if len(marks) == 1 and marks[0] in ACCENTS and base.isascii():
        dotless = {"i": r"\i", "j": r"\j"}.get(base, base)
        return rf"\{ACCENTS[marks[0]]}{{{dotless}}}"
    return f"U+{ord(character):04X}"
