"""A stranger's package, outside the tree and known by its entry points, on all engines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest
from stranger import install

from fedsuite.cli.main import main
from fedsuite.core import plugins
from fedsuite.core.files import read_document
from fedsuite.core.processes import kill
from fedsuite.deploy.federation import read_plan

CONNECTION = "with-a-package"
SUITE = """
title = "A package"
metric = "final_accuracy"
rows = "algo"
columns = ["dataset"]
runs = 1

[base]
clipped.limit = 0.5
partition = "turns"
model = "wide"
num-clients = 3
num-rounds = 2

[axes]
algo = ["clipped"]
dataset = ["moons"]
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The page's command, with its package on the path of this process and of those it starts."""
    folder = tmp_path_factory.mktemp("site")
    given = install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYTHONPATH", path)
        plugins.registered.cache_clear()
        yield given
    plugins.registered.cache_clear()
    for name in [name for name in sys.modules if name.startswith("my_federated")]:
        del sys.modules[name]


@pytest.fixture
def inline(words: list[str], experiment: Callable[..., Path]) -> bytes:
    """The model of the same run, inline."""
    _, algo, *pairs = words
    settings = dict(pair.split("=") for pair in pairs)
    return model(experiment(algo, **settings))


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_its_names_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for what, name in (
        ("algorithms", "clipped"),
        ("datasets", "moons"),
        ("models", "wide"),
        ("partitions", "turns"),
    ):
        assert main(["list", what]) == 0
        assert f"\n{name} " in capsys.readouterr().out
    assert main(["settings", "clipped"]) == 0
    assert "clipped.limit" in capsys.readouterr().out


def test_a_slip_in_one_of_its_names_is_answered_with_it(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "fedavg", "dataset=moon"]) == 2
    assert "Did you mean 'moons'?" in capsys.readouterr().err
    assert main(["run", "fedavg", "model=wde"]) == 2
    assert "Did you mean 'wide'?" in capsys.readouterr().err


@pytest.mark.slow
def test_in_a_suite_it_gives_the_inline_bits(inline: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SUITE)
    code, out = processes.finish(["suite", "mine.toml"], tmp_path)
    assert code == 0, out
    (name,) = (r["name"] for r in read_document(tmp_path / "runs/mine/suite.json")["runs"])
    assert model(tmp_path / "runs" / "mine" / name) == inline


@pytest.mark.ray
def test_on_ray_it_gives_the_inline_bits(words: list[str], inline: bytes, tmp_path: Path) -> None:
    options = ["--engine", "ray", "--nodes", "2", "--name", "on-ray"]
    code, out = processes.finish([*words, *options], tmp_path)
    assert code == 0, out
    assert model(tmp_path / "runs" / "on-ray") == inline


@pytest.mark.deploy
def test_deployed_it_gives_the_inline_bits(
    words: list[str], inline: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    up = ["deploy", "up", "--nodes", "3", "--dir", "hub", "--connection", CONNECTION]
    code, out = processes.finish(up, tmp_path)
    try:
        assert code == 0, out
        options = ["min-train-clients=3", "--superlink", CONNECTION, "--name", "deployed"]
        code, out = processes.finish([*words, *options], tmp_path, 600)
        assert code == 0, out
    finally:
        processes.finish(["deploy", "down", "--dir", "hub"], tmp_path)
        if found := read_plan(tmp_path / "hub"):
            kill(*found.processes())
    assert model(tmp_path / "runs" / "deployed") == inline
