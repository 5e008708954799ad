"""Threads that compute side by side, each alone, and what is left of them: nothing."""

from __future__ import annotations

import threading

import pytest
import torch

from fedsuite.core.threads import map_in_threads, threads


def test_a_block_has_its_number_of_threads_and_gives_it_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_items_are_computed_side_by_side_on_one_thread_each_and_stay_in_order() -> None:
    """Two threads meet at a barrier, so they are two; each has one thread of PyTorch's."""
    both, seen = threading.Barrier(2, timeout=30), []

    def square(item: int) -> int:
        both.wait()
        seen.append(torch.get_num_threads())
        return item * item

    with threads(2):
        assert map_in_threads(square, range(6)) == [0, 1, 4, 9, 16, 25]
        assert torch.get_num_threads() == 2
    assert seen == [1] * 6


def test_with_one_thread_nothing_is_started() -> None:
    with threads(1):
        assert (
            map_in_threads(lambda _: threading.current_thread(), range(2))
            == [threading.current_thread()] * 2
        )


def test_an_error_is_raised_and_the_number_of_threads_is_as_before() -> None:
    def fail(item: int) -> None:
        raise ValueError(f"item {item}")

    with threads(2):
        with pytest.raises(ValueError, match="item 0"):
            map_in_threads(fail, range(3))
        assert torch.get_num_threads() == 2
