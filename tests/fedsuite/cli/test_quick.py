"""Commands that only look something up import nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import write_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HEAVY = {
    *("torch", "torchvision", "flwr", "flwr_datasets", "numpy", "pandas", "pyarrow", "sklearn"),
    *("scipy", "matplotlib", "PIL", "ray", "datasets", "huggingface_hub", "safetensors"),
    *("cryptography", "grpc", "httpx", "uvicorn", "tomlkit", "wandb", "mlflow", "tensorboard"),
    *("onnx", "onnxruntime", "IPython"),
}
CPU_SECONDS = 2.0  # about 0.3 where it is quiet; importing torch alone takes more
SCRIPT = """
import resource, sys
from fedsuite.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
used = resource.getrusage(resource.RUSAGE_SELF)
print("\\n@", status, used.ru_utime + used.ru_stime, *sys.modules)
"""
LIGHT = [
    ("--help", 0),
    ("--version", 0),
    ("run --help", 0),
    ("predict --help", 0),
    ("predict nothing test", 2),
    ("suite --help", 0),
    ("suite nothing", 2),
    ("compare --help", 0),
    ("report --help", 0),
    ("deploy --help", 0),
    ("deploy up --help", 0),
    ("rnu", 2),
    ("run tacoo", 2),
    ("run taco kapa=1", 2),
    ("run taco taco.kapa=1", 2),
    ("run taco lr=abc", 2),
    ("run taco seed=1,1", 2),
    ("run taco fedprox.zeta=1", 2),
    ("run taco min-train-clients=30", 2),
    ("list algorithms", 0),
    ("list datasets", 0),
    ("list models", 0),
    ("list partitions", 0),
    ("list runs", 0),
    ("list runs --json", 0),
    ("list configs", 0),
    ("list suites", 0),
    ("settings", 0),
    ("settings taco", 0),
    ("show latest --json", 0),
    ("show mine", 0),
]


def ask(words: str, folder: Path, **environment: str) -> tuple[int, float, set[str]]:
    """Run a command in a process of its own; return its status, CPU seconds and modules."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words.split()],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    status, seconds, *modules = done.stdout.rpartition("\n@")[2].split()
    return int(status), float(seconds), set(modules)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in it."""
    folder = tmp_path_factory.mktemp("here")
    write_run(folder / "runs", "mine", "fedavg", [0.5, 0.6])
    return folder


@pytest.mark.parametrize(("words", "expected"), LIGHT, ids=[words for words, _ in LIGHT])
def test_a_quick_command_imports_nothing_heavy(here: Path, words: str, expected: int) -> None:
    status, seconds, modules = ask(words, here)
    assert status == expected
    assert not HEAVY & modules
    assert seconds < CPU_SECONDS


def test_completion_imports_nothing_heavy(tmp_path: Path) -> None:
    for words in ("fedsuite\nrun\nta", "fedsuite\nrun\ntaco\nmod"):
        chosen = {
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count("\n")),
            "_FEDSUITE_COMPLETE": "complete_bash",
        }
        status, _, modules = ask("", tmp_path, **chosen)
        assert status == 0 and not HEAVY & modules
