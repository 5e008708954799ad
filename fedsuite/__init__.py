"""fedsuite: federated-learning papers and their baselines as one Flower app."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsuite.api.bundle import bundle as bundle
    from fedsuite.api.compare import compare as compare
    from fedsuite.api.run import IncompleteRun as IncompleteRun
    from fedsuite.api.run import Run as Run
    from fedsuite.api.run import load as load
    from fedsuite.api.start import resume as resume
    from fedsuite.api.start import run as run
    from fedsuite.api.suite import SuiteRuns as SuiteRuns
    from fedsuite.api.suite import suite as suite
    from fedsuite.api.suite import sweep as sweep
    from fedsuite.api.verify import Verified as Verified
    from fedsuite.api.verify import verify as verify
    from fedsuite.core.settings import RunFailed as RunFailed
    from fedsuite.core.settings import UserError as UserError

__version__: str
_MODULES = {
    "run": "fedsuite.api.start",
    "resume": "fedsuite.api.start",
    "load": "fedsuite.api.run",
    "compare": "fedsuite.api.compare",
    "suite": "fedsuite.api.suite",
    "sweep": "fedsuite.api.suite",
    "bundle": "fedsuite.api.bundle",
    "verify": "fedsuite.api.verify",
    "Run": "fedsuite.api.run",
    "SuiteRuns": "fedsuite.api.suite",
    "Verified": "fedsuite.api.verify",
    "IncompleteRun": "fedsuite.api.run",
    "RunFailed": "fedsuite.core.settings",
    "UserError": "fedsuite.core.settings",
}


def __getattr__(name: str) -> Any:
    """Look a name up when somebody asks for it: importing fedsuite alone costs nothing."""
    from importlib import import_module

    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module 'fedsuite' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, "__version__"]


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
