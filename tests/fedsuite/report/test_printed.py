"""The results table in the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from run_folders import write_run

from fedsuite.records.collection import Collection, open_collection
from fedsuite.records.reader import read_run
from fedsuite.report.document import Bold, ReportTable
from fedsuite.report.printed import _tables, print_results


def printed(collection: Collection, width: int = 100) -> list[str]:
    screen = io.StringIO()
    print_results(collection, Console(file=screen, width=width))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_a_suite_is_printed_with_the_papers_numbers(suite: Path) -> None:
    """TACO has 62 and 64 %: 63 with a deviation of the square root of 2; the paper has 60."""
    lines = printed(open_collection(str(suite)))
    assert lines[1] == "A demonstration (small scale)"
    assert lines[2].split() == ["algo", "digits", "paper", "difference"]
    taco = next(line.split() for line in lines if line.startswith("taco"))
    assert taco[1:4] == ["63.00", "±", "1.41"]
    assert taco[-4:] == ["60.00", "±", "0.50", "+3.00"]
    assert any("mean ± sample standard deviation over 2 seeds" in line for line in lines)


def test_without_a_finished_run_nothing_is_printed(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "a", "fedavg", [0.1, 0.2], status="interrupted"))
    assert printed(Collection("a", "A", [run])) == []


@pytest.mark.parametrize(("width", "parts"), [(200, 1), (40, 2), (10, 3)])
def test_columns_that_do_not_fit_are_printed_below(width: int, parts: int) -> None:
    """A column stays with the paper's number; the rows are named in every part."""
    headings = ["algo", "data one", "paper", "difference", "data two", "data three"]
    block = ReportTable(headings, [["fedavg", Bold("1.00"), "2.00", "-1.00", "4.00", "5.00"]])
    console = Console(file=io.StringIO(), width=width)
    tables = _tables(block, console)
    shown = [[str(column.header) for column in table.columns] for table in tables]
    assert len(shown) == parts and all(names[0] == "algo" for names in shown)
    assert [name for names in shown for name in names[1:]] == headings[1:]
    assert shown[0][1:4] == headings[1:4]
