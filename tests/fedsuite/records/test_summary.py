"""The rates of expulsion in a run's summary, by hand."""

from __future__ import annotations

from fedsuite.records.summary import detection_rates


def test_rates_of_expulsion_by_hand() -> None:
    """Of 20 clients 4 freeload: 3 of them and 2 of the 16 others are expelled."""
    assert detection_rates({16, 17, 18, 19}, [1, 2, 16, 17, 18], 20) == (0.75, 0.125)


def test_without_freeloaders_the_expelled_are_all_honest() -> None:
    assert detection_rates((), [3, 4, 5, 6, 7], 20) == (None, 0.25)
    assert detection_rates((), [], 20) == (None, 0.0)
