"""Imports without a look for garbage."""

from __future__ import annotations

import gc

import pytest

from fedsuite.core.imports import quick_imports


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
