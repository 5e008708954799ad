"""Flower's connections: the ``[superlink.NAME]`` entries of ``config.toml`` in Flower's home.

Only the entry named is written or removed; other entries and comments stay as they are.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError, suggest

LOCAL = "local-deployment"
SECTION = "superlink"
NAME = re.compile(r"[A-Za-z0-9_-]+")


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
        """Whether the SuperLink is on this machine; Flower itself starts ``:local:``."""
        if self.address.startswith(":local"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def config_file(home: Path | None = None) -> Path:
    """Return the file of connections, in ``home`` or else in Flower's home (``FLWR_HOME``)."""
    usual = os.environ.get("FLWR_HOME")
    folder = home or (Path(usual) if usual else Path.home() / ".flwr")
    return folder / "config.toml"


def find_connection(name: str, home: Path | None = None) -> Connection:
    """Return a connection by its name, or list the names that exist."""
    path = config_file(home)
    entries = _entries(_read(path))
    if name not in entries:
        choices = f"{suggest(name, entries)} " if entries else ""
        raise UserError(
            f"There is no SuperLink connection '{name}' in {path}. {choices}`fedsuite deploy up` "
            f"creates '{LOCAL}', `fedsuite deploy connect` any other."
        )
    entry = entries[name]
    ca = entry.get("root-certificates")
    return Connection(name, str(entry.get("address", "")), Path(ca) if ca else None)


def connection_names(home: Path | None = None) -> list[str]:
    """Return the names of all connections."""
    return sorted(_entries(_read(config_file(home))))


def write_connection(connection: Connection, home: Path | None = None) -> Path:
    """Add or replace one entry; return the file."""
    if not NAME.fullmatch(connection.name):
        raise UserError(
            f"invalid connection name '{connection.name}': use letters, digits, '-' and '_'."
        )
    path = config_file(home)
    document = _read(path) if path.exists() else tomlkit.parse(_default_file())
    document = tomlkit.parse(_without(document, connection.name))
    section = document.setdefault(SECTION, tomlkit.table(is_super_table=True))
    inline = isinstance(section, InlineTable)
    section[connection.name] = tomlkit.inline_table() if inline else tomlkit.table()
    entry = section[connection.name]
    entry["address"] = connection.address
    if connection.ca is not None:
        entry["root-certificates"] = str(connection.ca)
    else:
        entry["insecure"] = True
    _write(path, tomlkit.dumps(document))
    return path


def remove_connection(name: str, home: Path | None = None) -> bool:
    """Remove one entry; return whether it existed."""
    path = config_file(home)
    document = _read(path)
    if name not in _entries(document):
        return False
    _write(path, _without(document, name).rstrip() + "\n")
    return True


def _without(document: tomlkit.TOMLDocument, name: str) -> str:
    """Return the file without an entry, but with the comments after it, which are the next one's.

    Entries of one section may be spread over a file.
    """
    for key, section in document.body:
        if key is None or key.key != SECTION:
            continue
        for index, (entry_key, entry) in enumerate(section.value.body):
            if entry_key is not None and entry_key.key == name:
                after = _trailing_comments(entry)
                section.value.remove(entry_key)
                if after:
                    section.value.body[index] = (None, tomlkit.ws(after))
    return tomlkit.dumps(document)


def _trailing_comments(entry: Any) -> str:
    """Return the comments and blank lines after the last key of an entry or of its subtables."""
    trailing = ""
    for key, item in reversed(entry.value.body if isinstance(entry, Table) else []):
        if key is not None:
            return _trailing_comments(item) + trailing
        trailing = item.as_string() + trailing
    return trailing


def _entries(document: tomlkit.TOMLDocument) -> dict[str, dict[str, Any]]:
    found = document.unwrap().get(SECTION, {})
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text() if path.exists() else "")
    except TOMLKitError as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from None


def _write(path: Path, text: str) -> None:
    """Replace the file, not a link to it, and keep its permissions."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    write_atomically(path, text.encode(), mode)
    if mode is not None:
        path.chmod(mode)


def _default_file() -> str:
    """Return what Flower writes into a new file; imported here, since it loads all of Flower."""
    from fedsuite.flower.compat import DEFAULT_FLOWER_CONFIG_TOML

    return DEFAULT_FLOWER_CONFIG_TOML
