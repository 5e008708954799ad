"""The wheel: installed into an empty environment, it runs on every engine from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from fedsuite.core.installation import PACKAGES, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.deploy]
SETTINGS = ["num-rounds=2", "model=mlp", "seed=3"]


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it; what it depends on is borrowed from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in (*PACKAGES, "sim_configs"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / "source" / part, ignore=ignore)
    for part in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / part, folder / "source")
    quick = ("--no-deps", "--no-index", "--quiet")
    pip("wheel", *quick, "--no-build-isolation", "-w", str(folder), str(folder / "source"))
    (wheel,) = folder.glob("fedsuite-*.whl")
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pip("--python", str(python), "install", *quick, str(wheel))
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "others.pth").write_text("\n".join([*others, ""]))
    for name in ("flwr", "ray"):
        for script in distribution(name).entry_points.select(group="console_scripts"):
            path = python.with_name(script.name)
            call = f"import sys; from {script.module} import {script.attr} as main"
            path.write_text(f"#!{python}\n{call}\nsys.exit(main())\n")
            path.chmod(0o755)
    return python


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with nothing in it."""
    folder = tmp_path / "anywhere"
    folder.mkdir()
    return folder


def run(python: Path, folder: Path, *words: str) -> str:
    """Run a command of the new environment, without anything of the checkout."""
    own = {"PATH": f"{python.parent}:/usr/bin:/bin", "FLWR_HOME": str(folder.parent / "flower")}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python.with_name(words[0])), *words[1:]],
        cwd=folder,
        env=kept | own,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def model(folder: Path, name: str) -> bytes:
    return (folder / "runs" / name / "model.safetensors").read_bytes()


@pytest.fixture
def superlink(python: Path, here: Path) -> Iterator[str]:
    """A federation of two nodes, started by the new environment."""
    (here.parent / "flower").mkdir()
    run(python, here, "fedsuite", "deploy", "up", "--nodes", "2")
    try:
        yield "local-deployment"
    finally:
        run(python, here, "fedsuite", "deploy", "down")


def test_it_runs_inline_on_ray_and_deployed_to_the_same_model(
    python: Path, here: Path, superlink: str
) -> None:
    place = run(python, here, "python", "-c", "import fedsuite; print(fedsuite.__file__)")
    assert Path(place.strip()).is_relative_to(python.parents[1])
    simulated = ["fedsuite", "run", "fedavg", *SETTINGS, "num-clients=2"]
    run(python, here, *simulated, "--engine", "inline", "--name", "inline")
    run(python, here, *simulated, "--engine", "ray", "--nodes", "1", "--name", "ray")
    assert model(here, "ray") == model(here, "inline")
    deployed = ["fedsuite", "run", "fedavg", *SETTINGS, "min-train-clients=2"]
    run(python, here, *deployed, "--superlink", superlink, "--name", "deployed")
    assert model(here, "deployed") == model(here, "inline")


def test_experiments_and_suites_come_with_it(python: Path, here: Path) -> None:
    assert "taco_table5" in run(python, here, "fedsuite", "list", "suites")
    assert "taco_adult" in run(python, here, "fedsuite", "list", "configs")
    words = ["demo", "--scale", "small", "--only", "algo=fedavg", "--jobs", "1"]
    assert "1 done, 0 failed" in run(python, here, "fedsuite", "suite", *words)
    run(python, here, "fedsuite", "report", "demo-small")
    assert (here / "report" / "index.html").is_file()
