"""Clients are distributed evenly over nodes, or stay where they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedsuite.nodes.simulated import balanced, fixed


def test_the_largest_goes_first_to_the_least_loaded() -> None:
    """Loads 7, 5, 4, 3: node 0 gets 7, node 1 gets 5, then 4 (9 in all), then node 0 gets 3."""
    assert balanced([0, 1, 2, 3], {0: 4, 1: 7, 2: 3, 3: 5}, 2) == [[1, 2], [3, 0]]


def test_a_client_keeps_its_node() -> None:
    assert fixed([5, 0, 3, 1], 2) == [[0], [1, 3, 5]]


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 1000), min_size=1), st.integers(1, 9))
def test_everybody_is_placed_once_and_nodes_differ_by_one_client_at_most(
    loads: dict[int, int], nodes: int
) -> None:
    cohorts = balanced(loads, loads, nodes)
    assert sorted(c for cohort in cohorts for c in cohort) == sorted(loads)
    totals = [sum(loads[c] for c in cohort) for cohort in cohorts]
    assert max(totals) - min(totals) <= max(loads.values())
