"""Flower's connections: the ``[superlink.NAME]`` entries of ``config.toml`` in Flower's home.

Only our own entry is written or removed; every other line of the file stays as it is.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError, suggest
from fedsuite.flower.commands import to_toml
from fedsuite.flower.compat import DEFAULT_FLOWER_CONFIG_TOML

LOCAL = "local-deployment"
NAME = re.compile(r"[A-Za-z0-9_-]+")
HEADER = re.compile(r"\s*\[")


@dataclass(frozen=True)
class Connection:
    """How to reach a SuperLink."""

    name: str
    address: str
    ca: Path | None = None

    @property
    def host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0].strip("[]") or self.address

    @property
    def is_loopback(self) -> bool:
        """Whether the SuperLink is on this machine; ``:local:`` is the one Flower starts."""
        if self.address.startswith(":local"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def config_file(home: Path | None = None) -> Path:
    """Return the file of connections: in ``home``, else where Flower looks (``FLWR_HOME``)."""
    usual = os.environ.get("FLWR_HOME")
    folder = home or (Path(usual) if usual else Path.home() / ".flwr")
    return folder / "config.toml"


def find_connection(name: str, home: Path | None = None) -> Connection:
    """Return a connection by its name, or say which there are."""
    path = config_file(home)
    entries = _entries(_read(path), path)
    if name not in entries:
        choices = suggest(name, entries) if entries else "There is none."
        raise UserError(
            f"There is no SuperLink connection '{name}' in {path}. {choices} `fedsuite deploy up` "
            f"makes '{LOCAL}', `fedsuite deploy connect` any other."
        )
    entry = entries[name]
    ca = entry.get("root-certificates")
    return Connection(name, str(entry.get("address", "")), Path(ca) if ca else None)


def connection_names(home: Path | None = None) -> list[str]:
    """Return the names of all connections."""
    path = config_file(home)
    return sorted(_entries(_read(path), path))


def write_connection(connection: Connection, home: Path | None = None) -> Path:
    """Add or replace one entry; return the file."""
    path = config_file(home)
    text = _read(path) if path.exists() else DEFAULT_FLOWER_CONFIG_TOML
    if not NAME.fullmatch(connection.name):
        raise UserError(
            f"A connection cannot be called '{connection.name}': use letters, digits, '-' and '_'."
        )
    trust = (
        f"root-certificates = {to_toml(str(connection.ca))}"
        if connection.ca is not None
        else "insecure = true"
    )
    entry = f"[superlink.{connection.name}]\naddress = {to_toml(connection.address)}\n{trust}\n"
    rest = _without(text, connection.name)
    _replace(path, text, f"{rest.rstrip()}\n\n{entry}" if rest.strip() else entry, connection.name)
    return path


def remove_connection(name: str, home: Path | None = None) -> bool:
    """Remove one entry; say whether it was there."""
    path = config_file(home)
    text = _read(path)
    if name not in _entries(text, path):
        return False
    _replace(path, text, _without(text, name).rstrip() + "\n", name)
    return True


def _without(text: str, name: str) -> str:
    """Cut an entry out: its header and settings, not the comments that follow them."""
    own = re.compile(rf'\s*\[\s*superlink\s*\.\s*["\']?{re.escape(name)}["\']?\s*[.\]]')
    kept: list[str] = []
    loose: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if HEADER.match(line):
            inside = bool(own.match(line))
            if not inside:
                kept += loose
            loose = []
        if not inside:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            loose.append(line)
        elif not HEADER.match(line):
            loose = []
    return "".join(kept + loose)


def _replace(path: Path, before: str, after: str, name: str) -> None:
    """Write the file if nothing but our entry has changed."""
    try:
        old, new = _entries(before, path), _entries(after, path)
    except UserError:
        old, new = {}, {name: {}, "": {}}
    old.pop(name, None)
    new.pop(name, None)
    if old != new:
        raise UserError(
            f"[superlink.{name}] in {path} is written in a way that cannot be changed without "
            "touching other entries. Remove that entry by hand and try again."
        )
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode if path.exists() else None
    write_atomically(path, after.encode())
    if mode is not None:
        path.chmod(mode)


def _entries(text: str, path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = tomllib.loads(text).get("superlink", {})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from None
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
