"""The rates of expulsion in a run's summary, by hand."""

from __future__ import annotations

from fedsuite.config import parse
from fedsuite.records.folder import RunState
from fedsuite.records.summary import share_of, summarise


def test_rates_of_expulsion_by_hand() -> None:
    """Of 20 clients 4 freeload and 2 attack: 3, 1 and 2 of the 14 others are expelled."""
    given = {"num-clients": 20, "freeloaders": "4", "attackers": "0,1,", "attack": "scaled"}
    expelled = {1, 2, 3, 16, 17, 18}
    found = summarise(parse(given), [], expelled, RunState.FINISHED)
    assert (found["freeloader_tpr"], found["attacker_tpr"]) == (0.75, 0.5)
    assert found["freeloader_fpr"] == 2 / 14


def test_without_freeloaders_the_expelled_are_all_honest() -> None:
    found = summarise(parse({"num-clients": 20}), [], {3, 4, 5, 6, 7}, RunState.FINISHED)
    assert (found["freeloader_tpr"], found["attacker_tpr"]) == (None, None)
    assert found["freeloader_fpr"] == 0.25


def test_the_share_of_none_is_unknown_and_of_some_may_be_zero() -> None:
    assert share_of([1], ()) is None
    assert share_of([], {1, 2}) == 0.0
