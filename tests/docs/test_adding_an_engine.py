"""Follow docs/adding-an-engine.md to the letter, in a copy of the source."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsuite.cli.main import main
from fedsuite.core.files import read_document

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-an-engine.md"
BLOCKS = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL))
PACKAGES = ("fedsuite", "strategies", "clients", "tasks")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the page's file and the page's line added."""
    folder = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "fedsuite" / "engines" / "pool.py").write_text(BLOCKS["fedsuite/engines/pool.py"])
    table = folder / "fedsuite" / "engines" / "table.py"
    head = "ENGINES: dict[str, Engine] = {\n"
    assert head in table.read_text()
    table.write_text(table.read_text().replace(head, head + BLOCKS["table line"]))
    return folder


def fedsuite(source: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedsuite.cli", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def pooled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's run."""
    place = tmp_path_factory.mktemp("pooled")
    command, *words = shlex.split(BLOCKS["command"])
    assert command == "fedsuite"
    done = fedsuite(source, place, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "runs" / words[-1]


def test_the_pages_engine_gives_the_inline_bits(pooled: Path, tmp_path: Path) -> None:
    _, *words = shlex.split(BLOCKS["command"])
    words[words.index("pool")] = "inline"
    assert main([*words, f"results-dir={tmp_path}"]) == 0
    assert read_document(pooled / "config.json")["meta"]["engine"] == "pool"
    models = [(run / "model.safetensors").read_bytes() for run in (pooled, tmp_path / words[-1])]
    assert models[0] == models[1]


def test_the_command_line_offers_it_and_resumes_with_it(source: Path, pooled: Path) -> None:
    assert "pool" in fedsuite(source, pooled, "run", "--help").stdout
    (pooled / "summary.json").unlink()
    done = fedsuite(source, pooled.parents[1], "resume", pooled.name, "--nodes", "1")
    assert done.returncode == 0, done.stderr
    log = (pooled / "run.log").read_text()
    assert log.count("results are in") == 2 and "flwr" not in log
