"""The app that Flower is handed: made of the installed modules, described as in the checkout."""

from __future__ import annotations

import tomllib
from email.message import Message
from importlib.metadata import PackageMetadata, PackageNotFoundError
from pathlib import Path

import pytest

from fedsuite.config import all_defaults
from fedsuite.core.installation import ROOT
from fedsuite.flower import app

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_app_is_submitted_without_what_is_beside_it(tmp_path: Path) -> None:
    """Every file that Flower packs, and no other: neither tests nor a virtual environment."""
    staged = app.stage_app(tmp_path, all_defaults())
    found = {path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file()}
    packages = ("fedsuite", "strategies", "clients", "tasks")
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*.py")
    }
    assert found == sources | {"pyproject.toml"}


def test_it_is_described_as_the_checkout_describes_itself(tmp_path: Path) -> None:
    """So `flwr run .` in a checkout and a run of the installed package are the same app."""
    staged = app.stage_app(tmp_path, all_defaults())
    described = tomllib.loads((staged / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    ours = PROJECT["tool"]["flwr"]["app"]
    for key in ("publisher", "components", "config"):
        assert described[key] == ours[key], key
    assert set(described["fab-include"]) < set(ours["fab-include"])


def test_it_names_what_it_needs_installed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> PackageMetadata:
        raise PackageNotFoundError(name)

    def written(name: str) -> PackageMetadata:
        about = Message()
        for key, value in (
            ("Name", name),
            ("Version", "9.9"),
            ("Summary", "words"),
            ("Requires-Dist", "torch>=2"),
            ("Requires-Dist", 'mypy; extra == "dev"'),
        ):
            about[key] = value
        return about  # type: ignore[return-value]

    monkeypatch.setattr(app, "metadata", written)
    assert app.describe_app({})["project"] == {
        "name": "fedsuite",
        "version": "9.9",
        "description": "words",
        "dependencies": ["torch>=2"],
    }
    monkeypatch.setattr(app, "metadata", missing)
    project = app.describe_app({})["project"]
    assert project["version"] == PROJECT["project"]["version"]
    assert project["dependencies"] == PROJECT["project"]["dependencies"]
