"""Imports without a look for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from fedsuite.cli.main import main
from fedsuite.core.imports import RARELY, quick_imports


def test_what_imports_have_made_stays_and_garbage_is_collected_again() -> None:
    gc.unfreeze()
    with quick_imports():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(made)
    gc.unfreeze()


def test_an_import_that_fails_keeps_nothing() -> None:
    gc.unfreeze()
    with pytest.raises(ImportError), quick_imports():
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


PROGRAM = """
import atexit, gc, sys
from fedsuite.cli.main import main
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 10_000))
sys.argv = ["fedsuite", "--version"]
main()
"""


def test_a_command_looks_for_garbage_rarely_and_not_at_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{RARELY[0]} True", done.stderr


def test_who_calls_the_command_from_python_keeps_its_own_collection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = gc.get_threshold()
    assert main(["--version"]) == 0
    assert gc.get_threshold() == before != RARELY
