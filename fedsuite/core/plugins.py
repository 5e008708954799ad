"""What users and installed packages add, by ``MODULE:ATTRIBUTE`` or by a registered name.

An installed package registers names as entry points of the groups below. They are read only where a
name is not one of ours, or to list all, and nothing is imported before it is used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fedsuite.core.settings import invalid, suggest

GROUPS = {  # by the setting that names one of them
    "algo": "fedsuite.algorithms",
    "dataset": "fedsuite.datasets",
    "model": "fedsuite.models",
    "partition": "fedsuite.partitions",
}
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@cache
def registered(key: str) -> dict[str, str]:
    """Return what installed packages register for a setting: names, each with its reference."""
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUPS[key]), key=lambda entry: (entry.name, entry.value))
    return {entry.name: f"{entry.module}:{entry.attr}" for entry in found}


def reference_of(key: str, name: str) -> str:
    """Return the ``MODULE:ATTRIBUTE`` that a name from outside stands for; "" if for none."""
    return name if REFERENCE.fullmatch(name) else registered(key).get(name, "")


def find(key: str, name: str, known: Iterable[str], hint: str = "") -> Any:
    """Return what a name from outside stands for; refuse one that is neither there nor known."""
    reference = reference_of(key, name)
    if not reference:
        raise invalid(key, name, suggest(name, {*known, *registered(key)}) + hint)
    return load(key, reference)


def load(key: str, reference: str) -> Any:
    """Import ``MODULE:ATTRIBUTE``."""
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise invalid(
                key,
                reference,
                f"there is no module '{module}' on the Python path. Install it, or put its folder "
                "into PYTHONPATH.",
            ) from None
        raise
    except AttributeError:
        raise invalid(key, reference, f"module '{module}' has no '{attribute}'.") from None


def short_name(name: str) -> str:
    """Return a name that can be part of a folder's: of a path its stem, of a module its last part.

    ``my_package.my_module:build`` is my-module, ``hf:owner/name`` name.
    """
    if REFERENCE.fullmatch(name):
        return name.partition(":")[0].rpartition(".")[2].replace("_", "-")
    last = Path(name.partition(":")[2] or name).stem if "/" in name or "." in name else name
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "data"


@cache
def source_version(reference: str) -> str:
    """Return a hash of the sources that a reference leads to: its module, or all of its package."""
    found = importlib.util.find_spec(reference.partition(":")[0].partition(".")[0])
    folders = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    if found is not None and found.origin and not folders:
        files = [Path(found.origin)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
