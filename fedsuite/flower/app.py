"""The app that Flower is handed: the installed modules, and a description of them.

Made from what is imported, it is the same in a checkout and in an installed package.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import tomli_w

from fedsuite.core.installation import PACKAGES, ROOT
from fedsuite.core.settings import Scalar

PROJECT = "pyproject.toml"
PUBLISHER = "fedsuite"
COMPONENTS = {
    "serverapp": "fedsuite.server_app:app",
    "clientapp": "fedsuite.engines.client_entry:app",
}


def stage_app(folder: Path, defaults: Mapping[str, Scalar]) -> Path:
    """Make the app inside a folder, and return where it is.

    ``defaults`` are those of all settings: Flower refuses a run-config with other keys.
    """
    target = folder / "app"
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (target / PROJECT).write_text(tomli_w.dumps(describe_app(defaults)), encoding="utf-8")
    return target


def describe_app(defaults: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the content of the app's project file."""
    app = {
        "publisher": PUBLISHER,
        "fab-include": [f"{package}/**/*.py" for package in PACKAGES],
        "components": COMPONENTS,
        "config": _tables(defaults),
    }
    return {"project": _project(), "tool": {"flwr": {"app": app}}}


def _project() -> dict[str, Any]:
    """Describe this package by its metadata; where it is not installed, by its sources."""
    try:
        about = metadata("fedsuite")
    except PackageNotFoundError:
        written = tomllib.loads((ROOT / PROJECT).read_text(encoding="utf-8"))["project"]
        return {key: written[key] for key in ("name", "version", "description", "dependencies")}
    requirements = about.get_all("Requires-Dist") or []
    return {
        "name": about["Name"],
        "version": about["Version"],
        "description": about["Summary"],
        "dependencies": [line for line in requirements if "extra ==" not in line],
    }


def _tables(settings: Mapping[str, Scalar]) -> dict[str, Any]:
    """Write dotted keys as tables: ``taco.kappa`` as ``{"taco": {"kappa": ...}}``."""
    tables: dict[str, Any] = {key: value for key, value in settings.items() if "." not in key}
    for key, value in settings.items():
        owner, dot, name = key.partition(".")
        if dot:
            tables.setdefault(owner, {})[name] = value
    return tables
