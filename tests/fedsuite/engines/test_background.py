"""A run on a background thread, interrupted at the worst moment."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from fedsuite.config import parse
from fedsuite.engines.background import run_in_background
from fedsuite.engines.contract import IsRunning


def test_an_interrupt_while_the_end_is_logged_is_no_error_of_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_logging, unhandled = threading.Event(), list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", unhandled.append)

    def emit(handler: logging.Handler, record: logging.LogRecord) -> None:
        is_logging.set()
        while True:
            time.sleep(0.01)  # until the interrupt comes

    def run() -> None:
        raise RuntimeError("no rows")

    def follow(is_running: IsRunning) -> None:
        assert is_logging.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsuite.engines.background.LogFile.emit", emit)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        run_in_background(parse({"results-dir": str(tmp_path), "run-name": "r"}), run, follow)
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert unhandled == []
