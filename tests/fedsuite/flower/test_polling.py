"""How often a guarded SuperNode looks for messages."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.supernode import start_client_internal

from fedsuite.core.settings import UserError
from fedsuite.flower.compat import FAST_POLLING, SUPERNODE_POLLING, poll_superlink
from fedsuite.flower.guard import seconds_of


def test_a_supernode_waits_no_longer_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    service: Any = start_client_internal
    monkeypatch.setattr(service, "time", service.time)  # to be restored
    monkeypatch.setattr("fedsuite.flower.compat.time.sleep", waited.append)
    poll_superlink(0.75)
    for asked in (3, 0.5):  # for a message, and for its answer
        service.time.sleep(asked)
    assert waited == [0.75, 0.5]


@pytest.mark.parametrize("interval", ["soon", "", "0", "-1", "nan", "3.5"])
def test_what_is_no_number_of_seconds_is_refused(interval: str) -> None:
    with pytest.raises(UserError, match=f"'{interval}' for {SUPERNODE_POLLING}: .* 0.01 to 3.0"):
        seconds_of(interval)


def test_local_federations_look_twice_per_second() -> None:
    assert seconds_of(FAST_POLLING[SUPERNODE_POLLING]) == 0.5
