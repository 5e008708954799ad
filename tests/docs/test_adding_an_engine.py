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


def test_the_pages_engine_gives_the_inline_bits(source: Path, tmp_path: Path) -> None:
    command, *words = shlex.split(BLOCKS["command"])
    assert command == "fedsuite"
    for name in ("pool", "inline"):
        changed = [{"pool": name, "pooled": name}.get(word, word) for word in words]
        done = fedsuite(source, tmp_path, *changed)
        assert done.returncode == 0, done.stdout + done.stderr
    pool, inline = (tmp_path / "runs" / name for name in ("pool", "inline"))
    assert read_document(pool / "config.json")["meta"]["engine"] == "pool"
    models = [(folder / "model.safetensors").read_bytes() for folder in (pool, inline)]
    assert models[0] == models[1]


def test_the_command_line_offers_it_and_resumes_with_it(source: Path, tmp_path: Path) -> None:
    assert "pool" in fedsuite(source, tmp_path, "run", "--help").stdout
    words = ["run", "fedavg", "num-clients=2", "num-rounds=1", "model=mlp", "--name", "cut"]
    assert fedsuite(source, tmp_path, *words, "--engine", "pool").returncode == 0
    (tmp_path / "runs" / "cut" / "summary.json").unlink()
    done = fedsuite(source, tmp_path, "resume", "cut")
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "runs" / "cut" / "run.log").read_text()
    assert log.count("results are in") == 2 and "flwr" not in log
