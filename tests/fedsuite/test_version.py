"""The version stands in one place, pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

import fedsuite

ROOT = Path(__file__).parents[2]


def test_sources_that_are_not_installed_know_their_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert fedsuite.__version__ == project["version"]


def test_an_installed_package_has_the_version_it_was_installed_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} 9.9")
    assert fedsuite.__version__ == "fedsuite 9.9"


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedsuite.nothing  # noqa: B018
