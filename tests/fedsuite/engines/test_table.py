"""The table of engines: light to read, and a run is resumed by the engine that ran it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from rich.console import Console

from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.core.protocol import DEPLOYED
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.engines.contract import EngineOptions
from fedsuite.engines.start import start_run
from fedsuite.engines.table import (
    AUTO,
    DEFAULT,
    DEFAULT_IN_SUITES,
    ENGINES,
    engine_to_resume,
    load_engine,
    prepare_engine,
    settle_engine,
)

ROOT = Path(__file__).parents[3]


def test_reading_the_table_loads_no_engine() -> None:
    source = (
        "import sys; import fedsuite.engines.table;"
        "print([m for m in ('torch', 'flwr', 'ray', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_function_and_a_line_of_help(name: str) -> None:
    assert callable(load_engine(name))
    assert ENGINES[name].summary


def test_a_parallel_engine_has_a_node_per_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert {name: engine.default_nodes for name, engine in ENGINES.items()} == {
        "inline": 1,
        "ray": 5,
    }


def test_help_names_the_engines_and_defaults_of_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    usual = {"run": ((AUTO, *ENGINES), DEFAULT), "suite": (tuple(ENGINES), DEFAULT_IN_SUITES)}
    for command, (names, default) in usual.items():
        main([command, "--help"])
        (line,) = re.findall(r"--engine \[(.*?)\].*\(default: (\w+)\)", _plain(capsys))
        assert line == ("|".join(names), default)


def _plain(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_engines_are_named_in_the_table_alone() -> None:
    """Outside their own room; ``ray`` is also a package, whose version a run records."""
    elsewhere = {
        "fedsuite/core/protocol.py",
        "fedsuite/flower/compat.py",
        "fedsuite/records/provenance.py",
    }
    for path in sorted((ROOT / "fedsuite").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("fedsuite/engines/") or name in elsewhere:
            continue
        words = [n.value for n in ast.walk(ast.parse(path.read_text())) if _is_text(n)]
        assert not {*ENGINES, DEPLOYED} & set(words), name


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_an_unknown_engine_is_refused_with_the_choices(tmp_path: Path) -> None:
    config = parse({"results-dir": str(tmp_path / "runs")})
    said = r"invalid value 'inlin' for --engine: Did you mean 'inline'\?"
    expected = rf"{said} Choices: auto, inline, ray\."
    with pytest.raises(UserError, match=expected):
        start_run(config, "inlin", EngineOptions(), Console())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "nodes", "gpus", "expected"),
    [
        ("auto", 0, 0.0, "auto"),
        ("auto", 1, 0.0, "ray"),
        ("auto", 0, 0.5, "ray"),
        ("inline", 3, 0.0, "inline"),
        ("ray", 0, 0.0, "ray"),
    ],
)
def test_nodes_or_gpus_mean_ray_unless_an_engine_is_named(
    name: str, nodes: int, gpus: float, expected: str
) -> None:
    assert settle_engine(name, nodes, gpus) == expected


@pytest.mark.parametrize("name", ["auto", "inline", ""])
def test_only_ray_starts_something_before_the_checks(name: str) -> None:
    with prepare_engine(name) as prepared:
        assert prepared is None


def test_a_superlink_is_started_before_the_settings_are_read_and_ends_with_a_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    @contextmanager
    def prepare(ray_address: str) -> Iterator[None]:
        seen.append("started")
        try:
            yield
        finally:
            seen.append("ended")

    monkeypatch.setattr("fedsuite.engines.ray.prepare", prepare)
    assert main(["run", "fedavg", "num-clients=5000", "--engine", "ray"]) == 2
    assert seen == ["started", "ended"] and "5000" in capsys.readouterr().err


RECORDED = {"inline": "inline", "ray": "ray", "flower": "ray", "": "auto", "of-tomorrow": "auto"}


@pytest.mark.parametrize(("recorded", "expected"), RECORDED.items())
def test_a_run_is_resumed_by_the_engine_that_ran_it(
    recorded: str,
    expected: str,
    experiment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``flower`` is what earlier versions recorded for Ray; of nothing known, time decides."""
    folder = experiment(num_rounds=1)
    (folder / "summary.json").unlink()
    document = json.loads((folder / "config.json").read_text())
    document["meta"] |= {"engine": recorded}
    (folder / "config.json").write_text(json.dumps(document))
    asked: list[str] = []

    def note(config: Any, engine: str, *rest: Any) -> Path:
        asked.append(engine)
        raise RunFailed("noted")

    monkeypatch.setattr("fedsuite.engines.ray.prepare", nullcontext)
    monkeypatch.setattr("fedsuite.engines.start.start_run", note)
    assert main(["resume", str(folder)]) == 1
    assert asked == [expected] == [engine_to_resume(recorded)]
