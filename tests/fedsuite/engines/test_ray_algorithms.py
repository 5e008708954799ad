"""Every algorithm on the Ray engine: the inline engine's bits, after a crash and a resume."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from algorithms import FEW_EPOCHS, ON_ENGINES

from fedsuite.core.scratch import scratch_folder
from fedsuite.engines.ray import superlink

pytestmark = pytest.mark.ray
SETTINGS = {
    "num-clients": 6,
    "num-rounds": 3,
    "model": "mlp",
    "fraction-train": 0.85,  # five of six: multi-krum leaves one of them out
    "freeloaders": "1",
    "attack": "gaussian",
    "attackers": "0,",
    "checkpoint-every": 2,
}
PYPROJECT = """\
[project]
name = "every-algorithm"
version = "1.0.0"
description = "Every algorithm over one simulation"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsuite"

[tool.flwr.app.components]
serverapp = "every_algorithm:app"
clientapp = "fedsuite_client:app"

[tool.flwr.app.config]
settings = ""
"""


@pytest.fixture(scope="module")
def ray_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run them all in one simulation of two nodes; return the folder of runs."""
    root = tmp_path_factory.mktemp("every")
    app = root / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(PYPROJECT)
    (app / "fedsuite_client.py").write_text(
        "import fedsuite.client_app\n\napp = fedsuite.client_app.app\n"
    )
    shutil.copy(Path(__file__).parents[2] / "helpers/every_algorithm.py", app)
    shared = SETTINGS | {"results-dir": str(root / "runs")}
    settings = json.dumps({"algorithms": ON_ENGINES, "shared": shared, "own": FEW_EPOCHS})
    config = root / "settings.toml"
    config.write_text(f"settings = '{settings}'\n")
    flwr = str(Path(sys.executable).parent / "flwr")
    nodes = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=2"
    command = [flwr, "run", str(app), "--stream", "--run-config", str(config)]
    with (
        pytest.MonkeyPatch.context() as patch,
        scratch_folder() as home,
        superlink_here(patch, home),
    ):
        done = subprocess.run(
            [*command, "--federation-config", nodes],
            env=os.environ | {"FLWR_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=400,
        )
    (root / "runs").mkdir(exist_ok=True)
    (root / "runs" / "log").write_text(done.stdout + done.stderr)
    return root / "runs"


def superlink_here(
    patch: pytest.MonkeyPatch, home: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start a SuperLink whose apps import this checkout, installed or not."""
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return superlink(home)


def results(folder: Path) -> list[bytes]:
    """The global model if there is one, and every client's newest state."""
    states = {p.parent.name: p.read_bytes() for p in sorted((folder / "clients").rglob("*.safet*"))}
    model = folder / "model.safetensors"
    return [model.read_bytes() if model.exists() else b"", *states.values()]


@pytest.mark.parametrize("algo", ON_ENGINES)
def test_ray_gives_the_inline_bits(
    algo: str, ray_runs: Path, experiment: Callable[..., Path]
) -> None:
    assert (ray_runs / algo / "summary.json").exists(), (ray_runs / "log").read_text()
    inline = results(experiment(algo, **SETTINGS, **FEW_EPOCHS.get(algo, {})))
    assert any(inline)
    assert results(ray_runs / algo) == inline
