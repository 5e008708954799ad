"""What others wrote is one printable line, or a few, and can be encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedsuite.core.messages import clean_reason
from fedsuite.core.text import clean_line, clean_lines

ODD = "�"


def test_what_moves_a_cursor_or_cannot_be_encoded_is_replaced() -> None:
    """ESC, half a character, a bidi override, a bell; other scripts and markup stay."""
    assert clean_line("\x1b[31mred") == f"{ODD}[31mred"
    assert clean_line("a\udcffb\u202ec\x07d") == f"a{ODD}b{ODD}c{ODD}d"
    assert clean_line("naïve 中文 [bold]x[/]") == "naïve 中文 [bold]x[/]"


def test_a_line_stays_one_line() -> None:
    assert clean_line("a\nb\r\nc\u2028d\te") == "a b  c d e"


def test_a_line_is_cut_and_says_so() -> None:
    assert clean_line("x" * 10, 10) == "x" * 10
    assert clean_line("x" * 11, 10) == "x" * 9 + "…"


def test_lines_are_kept_with_their_indentation_and_their_end() -> None:
    text = "Traceback\n  File\x1b\nError: no\n"
    assert clean_lines(text, 100) == f"Traceback\n  File{ODD}\nError: no"
    assert clean_lines("first\nlast", 5) == "last"


def test_a_reason_is_never_empty() -> None:
    assert clean_reason("") == clean_reason(" \n\n ") == "unknown error"


@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_becomes_printable(text: str) -> None:
    line, lines = clean_line(text, 40), clean_lines(text, 40)
    assert line.isprintable() and line.encode() is not None and len(line) <= 40
    assert all(part.isprintable() for part in lines.split("\n")) and len(lines) <= 40
