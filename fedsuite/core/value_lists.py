"""Several values of one setting, as users write them: ``lr=0.01,0.1``.

A value that has a comma itself stands in double quotes, ``label-column="a,b"``; a quote inside is
doubled. Text of the settings ``WHOLE`` may have commas anyway, so that there a comma separates
values only if the first is quoted: ``freeloaders=3,7,`` is one value, ``freeloaders="4","8"`` two.
"""

from __future__ import annotations

import re

from fedsuite.core.settings import invalid, spell

COMMA_LISTS = ("algo-settings", "attackers", "freeloaders", "input-columns", "tracking")
# Where a run is, which is not what runs of a sweep differ in.
PLACES = ("data-root", "results-dir", "resume", "run-name", "server-data", "superlink")
WHOLE = frozenset((*COMMA_LISTS, *PLACES))
COMMA, QUOTE = ",", '"'
VALUE = re.compile(r'\s*(?:"((?:[^"]|"")*)"|((?!")[^,]*))\s*(,|\Z)')


def split_values(key: str, text: str) -> list[str]:
    """Read the values of a setting; text without a comma is one value, whatever it is."""
    if COMMA not in text or (key in WHOLE and not text.startswith(QUOTE)):
        return [text]
    values, end, more = list[str](), 0, True
    while more:
        found = VALUE.match(text, end)
        if found is None:
            raise invalid(key, text, 'a value in quotes ends with a quote: "a,b","c".')
        quoted, plain, comma = found.groups()
        if quoted is None and not plain.strip():
            raise invalid(key, text, "a value between commas is missing.")
        values.append(plain.strip() if quoted is None else quoted.replace(2 * QUOTE, QUOTE))
        end, more = found.end(), bool(comma)
    return values


def write_pair(key: str, value: object) -> str:
    """Write a setting, or a list of its values, as a word of a command line."""
    if isinstance(value, list):
        texts = [spell(one) for one in value]
        return f"{key}={COMMA.join(_quoted(t) if _needs(key, t) else t for t in texts)}"
    text = spell(value)
    in_whole = key in WHOLE and not text.startswith(QUOTE)
    return f"{key}={_quoted(text) if COMMA in text and not in_whole else text}"


def _needs(key: str, text: str) -> bool:
    """Return whether one of several values must be quoted."""
    return key in WHOLE or COMMA in text or text.startswith(QUOTE) or not text.strip()


def _quoted(text: str) -> str:
    return QUOTE + text.replace(QUOTE, 2 * QUOTE) + QUOTE
