"""The numbers of docs/scaling.md follow from its formulas, and its limits are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.round_cost import LINK, Overhead, Size, amount, round_seconds
from fedsuite.core.stacked_model import MOST_ON_CPU, MOST_ROWS

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
ROW = re.compile(
    r"\| (MLP|ResNet-18)[^|]*\| ([\d,]+) \| (\d+) \| ([\d.]+ [kMG]B) \| ([\d.]+ [kMG]B) "
    r"\| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \|"
)
PARAMETERS = {"MLP": 4074, "ResNet-18": 11_173_962}


def constant(name: str) -> float:
    """Return a number of the page's table of constants."""
    found = re.search(rf"\| `{re.escape(name)}`[^|]*\|[^|]*\| ([\d.]+) ", PAGE)
    assert found, name
    return float(found[1])


@pytest.mark.parametrize("row", ROW.findall(PAGE), ids=lambda row: " ".join(row[:3]))
def test_bytes_and_seconds_follow_from_the_formula(row: tuple[str, ...]) -> None:
    """With eight workers a machine, by the constants that the page states."""
    name, clients, machines, down, up, training, overhead, network, total = row
    count, hosts = int(clients.replace(",", "")), int(machines)
    size = Size(PARAMETERS[name], count, 8 * hosts, hosts)
    assert (down, up) == (amount(size.bytes_down), amount(size.bytes_up))
    known = Overhead(constant("a"), constant("c") / 1e3, constant("m") / 1e9, constant("r") / 1e9)
    client_seconds = constant(f"t, {name}") / 1e3
    moved = (size.bytes_down + size.bytes_up) / LINK if hosts > 1 else 0.0
    expected = (
        -(-count // size.workers) * client_seconds,
        known.seconds(size),
        moved,
        round_seconds(size, known, client_seconds),
    )
    for found, value in zip((training, overhead, network, total), expected, strict=True):
        assert float(found.replace(",", "")) == pytest.approx(value, abs=0.0051)


def test_every_row_is_checked() -> None:
    assert len(ROW.findall(PAGE)) == 7
    assert constant("B") * 1e9 == LINK


def test_the_limits_of_stacks_are_the_codes() -> None:
    assert f"stacks of up to {MOST_ROWS} clients" in PAGE.replace("\n", " ")
    assert f"up to {MOST_ON_CPU:,} parameters on a CPU" in PAGE
