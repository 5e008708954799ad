"""Runs baseline (c), the quickstart app, through a SuperLink of its own as the suite's runs do."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.job import open_job
from fedsuite.core.processes import start, stop
from fedsuite.engines.ray import CONNECTION, superlink
from fedsuite.flower.commands import environment, executable

SOURCE = Path(__file__).resolve().parent / "quickstart"
WORKERS = 2
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "quickstart"
version = "1.0.0"
description = "A plain Flower app"
license = "Apache-2.0"
dependencies = ["flwr[simulation]", "torch"]

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "quickstart.server_app:app"
clientapp = "quickstart.client_app:app"

[tool.flwr.app.config]
job = "{job}"
output = "{output}"
"""


def run(job: Path, output: Path) -> int:
    """Write the app, run it with one SuperNode per client, return Flower's exit status."""
    home = Path(tempfile.mkdtemp(prefix="flwr-"))
    try:
        app = write_app(home / "app", job, output)
        clients = len(open_job(job)[1].parts)
        with superlink(home):
            flwr = start(
                submit_command(app, clients), environment(home), output=sys.stdout.fileno()
            )
            try:
                return flwr.wait()
            finally:
                stop(flwr)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def write_app(folder: Path, job: Path, output: Path) -> Path:
    """Write the app's folder."""
    package = folder / "quickstart"
    package.mkdir(parents=True)
    for source in SOURCE.glob("*.py"):
        shutil.copy(source, package)
    (folder / "pyproject.toml").write_text(PROJECT.format(job=job, output=output))
    return folder


def submit_command(app: Path, clients: int) -> list[str]:
    """Return the ``flwr run`` command: a CPU for each client, two at a time."""
    federation = (
        f"num-supernodes={clients} client-resources-num-cpus=1 "
        f"client-resources-num-gpus=0.0 init-args-num-cpus={WORKERS}"
    )
    words = ["run", str(app), CONNECTION, "--federation-config", federation, "--stream"]
    return [*executable("flwr"), *words]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    sys.exit(run(arguments.job.absolute(), arguments.output.absolute()))
