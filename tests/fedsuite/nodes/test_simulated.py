"""Clients are distributed evenly over nodes, dealt out to who is free, or stay where they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedsuite.nodes.simulated import balanced, dealt, fixed


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


def work(cohorts: list[list[int]], loads: dict[int, int], speeds: list[float]) -> list[float]:
    """Let whoever is free first take the next cohort; return when each node ends."""
    ends = [0.0] * len(speeds)
    for cohort in cohorts:
        free = ends.index(min(ends))
        ends[free] += sum(loads[client] for client in cohort) / speeds[free]
    return ends


def test_half_of_what_is_left_is_dealt_out_in_a_cohort_per_node() -> None:
    """Of 8 units 4 go out, of the other 4 another 2, of 2 one, then the last one."""
    equal = dict.fromkeys(range(8), 1)
    assert dealt(equal, equal, 2) == [[0, 2], [1, 3], [4], [5], [6], [7]]


def test_the_node_that_will_be_free_first_is_dealt_to_first() -> None:
    """Of 20 units 7 and 5 go out; 4 to who has 5, then 3 to who has 7, and 1 to who has 9."""
    assert dealt(range(5), {0: 1, 1: 7, 2: 3, 3: 5, 4: 4}, 2) == [[1], [3], [4], [2], [0]]


def test_a_fast_node_computes_more_clients() -> None:
    """At twice the speed a node has its 2 units after 1 s, two more by 2 s, and another by 2.5 s.

    With half of the clients each, the slow node would need 4 s.
    """
    equal = dict.fromkeys(range(8), 1)
    assert work(dealt(equal, equal, 2), equal, [2.0, 1.0]) == [2.5, 3.0]


def test_clients_without_load_are_dealt_out_too() -> None:
    assert dealt([0, 1, 2], {0: 0, 1: 0, 2: 0}, 2) == [[0], [1], [2]]


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 1000), min_size=1), st.integers(1, 9))
def test_everybody_is_dealt_out_once_and_equal_nodes_end_together(
    loads: dict[int, int], nodes: int
) -> None:
    cohorts = dealt(loads, loads, nodes)
    assert sorted(c for cohort in cohorts for c in cohort) == sorted(loads)
    assert all(cohorts)
    ends = work(cohorts, loads, [1.0] * nodes)
    assert max(ends) - min(ends) <= max(sum(loads[c] for c in cohort) for cohort in cohorts)
