"""Each operator on a snippet: what changes, and what is left alone."""

from __future__ import annotations

import pytest

from mutants.operators import mutants_of


def changed(source: str) -> set[str]:
    return {mutant.apply(source) for mutant in mutants_of(source, "snippet.py")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"(a <= b)"}),
        ("a is not b", {"(a is b)"}),
        ("a < b in c", {"(a <= b in c)", "(a < b not in c)"}),
        ("c - (a) * b", {"(c + (a) * b)", "c - ((a) / b)"}),
        ("x // y", {"(x / y)"}),
        ("a and b or c", {"(a or b) or c", "(a and b and c)"}),
        ("not a", {"(a)"}),
        ("x = 0", {"x = 1"}),
        ("x = -1", {"x = (1)", "x = -0"}),
        ("x = 7, 2.5, True", {"x = 8, 2.5, True", "x = 7, 5.0, True", "x = 7, 2.5, False"}),
        ("if a: b", {"if (not (a)): b"}),
        ("[i for i in x if i]", {"[i for i in x if (not (i))]"}),
        ("f()", {"pass"}),
        ("raise ValueError(1)", {"pass"}),
        ("a.b = c", {"pass"}),
        ("x += y", {"pass", "x -= y"}),
        ("x = max(a, b)", {"x = min(a, b)"}),
        ("x = a.mean()", {"x = a.sum()"}),
        ("x = f(a, b, k=c)", {"x = f(b, a, k=c)", "x = f(a, b)"}),
        ("x = f(k=a, j=b)", {"x = f(j=b)", "x = f(k=a)"}),
        ("model.eval()", {"pass", "model.train()"}),
        ("x = a[i:j]", {"x = a[(i) + 1:j]", "x = a[i:(j) - 1]"}),
        ("for i in x: break", {"for i in x: continue"}),
        ("x = sorted(a)", {"x = list(a)"}),
        (
            "def f(v, w):\n    return g(v)",
            {"def f(v, w):\n    return v"},
        ),
        ("é = 'ü', 1", {"é = 'ü', 0"}),
    ],
)
def test_an_operator_changes_one_place(source: str, expected: set[str]) -> None:
    assert changed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring 1 < 2."""',
        "x = 'a' + b",
        "x: list[0]",
        "def f(x: A | B) -> C[1]: ...",
        "def __repr__(self):\n    return f(1)",
        "if TYPE_CHECKING:\n    x = 1",
        "if __name__ == '__main__':\n    main()",
        "log.warning('%d', 1)",
        "x = f'{a + 1}'",
        "@dataclass(frozen=True)\nclass A: ...",
        "x = zip(a, b, strict=True)",
        "POLL_SECONDS = 5",
    ],
)
def test_what_no_test_should_notice_is_left_alone(source: str) -> None:
    assert not changed(source)


def test_a_message_is_left_alone_and_the_raise_is_not() -> None:
    assert changed("raise invalid('x', n + 1, f(a, b))") == {"pass"}


def test_a_mutant_knows_its_statement_and_whether_it_runs_at_import() -> None:
    source = "LIMIT = 3\ndef f(x=1):\n    if (x\n            > 2):\n        return 5\n"
    found = {mutant.text: mutant for mutant in mutants_of(source, "snippet.py")}
    assert {text: m.line for text, m in found.items()} == {
        "4": 1, "0": 2, "(x\n            >= 2)": 3, "3": 4, "6": 5,
    }  # fmt: skip
    assert {text for text, m in found.items() if m.at_import} == {"4", "0"}
    assert (found["3"].lines, found["6"].lines) == ((3, 4), (5, 5))
