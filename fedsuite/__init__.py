"""fedsuite: federated-learning papers and their baselines as one Flower app."""

from typing import Any

__version__: str


def __getattr__(name: str) -> Any:
    """Look the version up when somebody asks for it, since that takes a while."""
    if name != "__version__":
        raise AttributeError(f"module 'fedsuite' has no attribute '{name}'")
    return _version()


def _version() -> str:
    """Return the installed version; where nothing is installed, that of the sources."""
    import tomllib
    from importlib.metadata import PackageNotFoundError, version
    from pathlib import Path

    try:
        return version("fedsuite")
    except PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
