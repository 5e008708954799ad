"""The numbers of docs/scaling.md follow from its formulas, and its limits are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsuite.core.stacked_model import MOST_ON_CPU, MOST_ROWS

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
ROW = re.compile(
    r"\| (MLP|ResNet)[^|]*\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) ([MG])B \| ([\d.]+) ([MG])B \|"
)
PARAMETERS = {"MLP": 4074, "ResNet": 11.2e6}


@pytest.mark.parametrize("row", ROW.findall(PAGE), ids=lambda row: " ".join(row[:3]))
def test_bytes_follow_from_the_formula(row: tuple[str, ...]) -> None:
    """Down 4 P W with eight workers a machine, up 4 P n."""
    name, clients, machines, down, down_unit, up, up_unit = row
    size, units = 4 * PARAMETERS[name], {"M": 1e6, "G": 1e9}
    workers = 8 * int(machines.replace(",", ""))
    assert size * workers / units[down_unit] == pytest.approx(float(down), abs=0.051)
    assert size * int(clients.replace(",", "")) / units[up_unit] == pytest.approx(
        float(up), abs=0.051
    )


def test_every_row_is_checked() -> None:
    assert len(ROW.findall(PAGE)) == 4


def test_the_limits_of_stacks_are_the_codes() -> None:
    assert f"stacks of up to {MOST_ROWS} clients" in PAGE.replace("\n", " ")
    assert f"up to {MOST_ON_CPU:,} parameters on a CPU" in PAGE
