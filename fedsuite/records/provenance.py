"""Where a run's numbers come from: command, engine, versions, machine and split."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

from fedsuite.core.protocol import DEPLOYED

if TYPE_CHECKING:
    from fedsuite.config import RunConfig

META = "meta"  # the key of config.json that holds the provenance
RUN_ID = "run-id"
PACKAGES = ("fedsuite", "flwr", "torch", "numpy", "flwr-datasets", "ray")


def provenance(config: RunConfig, engine: str, split: str) -> dict[str, Any]:
    """Collect what a reader needs to trust a run, and to repeat it."""
    unnamed = engine == DEPLOYED and not config.superlink  # submitted by `flwr run` itself
    return {
        "engine": engine,
        "command": config.command() + (" --superlink NAME" if unnamed else ""),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "split-fingerprint": split,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": {name: _version(name) for name in PACKAGES},
    }


def versions() -> dict[str, str]:
    """Return the versions that results and problems may depend on, importing none of it."""
    ours, *others = PACKAGES
    found = {ours: _version(ours), "python": platform.python_version()}
    return found | {name: _version(name) for name in others}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
