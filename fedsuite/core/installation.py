"""Where this code is, and the files that come with it: a checkout's folder, or site-packages."""

from __future__ import annotations

from pathlib import Path

from fedsuite.core.settings import UserError, shown, suggest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedsuite", "strategies", "clients", "tasks")
CONFIGS = ROOT / "sim_configs"
SUITES = CONFIGS / "suites"


def shipped_files(folder: Path) -> dict[str, Path]:
    """Return the TOML files of a folder that comes with this code, by name."""
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_file(name: str, folder: Path, what: str) -> Path:
    """Return a user's file by its path, or one of those in ``folder`` by its name."""
    path, known = Path(name), shipped_files(folder)
    if path.suffix or len(path.parts) != 1 or path.is_file():
        return path
    if name not in known:
        raise UserError(f"There is no {what} '{shown(name)}'. {suggest(name, known)}")
    return known[name]
