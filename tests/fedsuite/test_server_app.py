"""The ServerApp's own lines can be told from Flower's."""

from __future__ import annotations

import logging

from fedsuite.server_app import MarkedLines


def test_every_line_of_a_message_is_marked() -> None:
    record = logging.makeLogRecord({"msg": "the run failed: %s", "args": ("no rows\nin a.csv",)})
    assert MarkedLines().format(record) == "fedsuite: the run failed: no rows\nfedsuite: in a.csv"
