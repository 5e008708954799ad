"""Every Ray worker pays for what the ClientApp imports: nothing that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNNEEDED = {
    *("datasets", "flwr_datasets", "matplotlib", "mkdocs", "pandas", "pyarrow", "ray", "scipy"),
    *("sklearn", "tensorboard", "torchvision", "torch._dynamo", "torch._inductor", "sympy"),
    *("fastapi", "sqlalchemy", "uvicorn"),
    *("fedsuite.cli", "fedsuite.engines", "fedsuite.report", "fedsuite.suites", "fedsuite.deploy"),
    *("fedsuite.training", "fedsuite.terminal", "strategies"),
}


def modules_of(module: str) -> set[str]:
    """Return what a new process has loaded after it has imported a module."""
    source = f"import sys; import {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.slow
def test_a_worker_imports_only_what_it_needs() -> None:
    loaded = modules_of("fedsuite.client_app")
    assert "torch" in loaded and not loaded & UNNEEDED


@pytest.mark.slow
def test_ray_starts_while_pytorch_is_imported() -> None:
    """Flower loads the ClientApp before it starts Ray, while the ServerApp's thread imports."""
    unneeded = UNNEEDED - {"fedsuite.engines"} | {"torch", "fedsuite.client_app"}
    assert not modules_of("fedsuite.engines.client_entry") & unneeded


def test_what_flower_loads_answers_as_the_client_app_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsuite import client_app
    from fedsuite.engines import client_entry

    monkeypatch.setattr(client_app, "app", lambda message, context: (message, context))
    message, context = object(), object()
    assert client_entry.app(message, context) == (message, context)  # type: ignore[arg-type]
