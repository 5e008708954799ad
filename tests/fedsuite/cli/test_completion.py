"""What shells get at the Tab key, by the protocol of their completion scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def fedsuite(folder: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fedsuite.cli", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def complete_bash(folder: Path, *words: str) -> list[str]:
    """Complete the last word; bash hands over words that it broke at ``=``."""
    return fedsuite(
        folder,
        COMP_WORDS="\n".join(["fedsuite", *words]),
        COMP_CWORD=str(len(words)),
        _FEDSUITE_COMPLETE="complete_bash",
    ).split()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["re"], ["resume", "report"]),
        (["deploy", "co"], ["connect"]),
        (["run", "fedprox"], ["fedprox", "fedprox-tailored"]),
        (["run", "taco", "taco.ka"], ["taco.kappa=", "taco.kappa=0.6"]),
        (["run", "taco", "fedprox.z"], []),
        (["run", "taco", "lr-"], ["lr-schedule=", "lr-decay="]),
        (["run", "taco", "--name", "x", "optim"], ["optimizer=sgd", "optimizer=adam"]),
        (["run", "taco", "optimizer", "="], ["sgd", "adam"]),
        (["run", "taco", "optimizer", "=", "a"], ["adam"]),
        (["run", "taco", "resume", "=", ""], ["true", "false"]),
        (["run", "taco", "--engine", ""], ["auto", "inline", "ray"]),
        (["partition", "partition", "=", "pa"], ["pathological"]),
        (["list", "m"], ["models"]),
        (["settings", "foo"], ["foolsgold"]),
        (["show", ""], ["first", "second"]),
        (["resume", "--results-dir", "other", ""], ["third"]),
        (["predict", ""], ["first", "second"]),
        (["export", "--format", ""], ["onnx", "torch"]),
        (["report", ""], ["first", "second", "table"]),
    ],
)
def test_bash(tmp_path: Path, words: list[str], offers: list[str]) -> None:
    for file in (
        "runs/first/config.json",
        "runs/second/config.json",
        "runs/table/suite.json",
        "other/third/config.json",
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("{}")
    assert complete_bash(tmp_path, *words) == offers


def test_zsh_and_fish_keep_key_and_value_in_one_word(tmp_path: Path) -> None:
    line = "fedsuite run taco taco.detector=gu"
    zsh = fedsuite(tmp_path, _TYPER_COMPLETE_ARGS=line, _FEDSUITE_COMPLETE="complete_zsh")
    assert '"taco.detector=guarded"' in zsh and "printed" not in zsh
    fish = fedsuite(
        tmp_path,
        _TYPER_COMPLETE_ARGS=line,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _FEDSUITE_COMPLETE="complete_fish",
    )
    assert fish.split() == ["taco.detector=guarded"]


def test_the_script_for_a_shell_is_shown(tmp_path: Path) -> None:
    script = fedsuite(tmp_path, _FEDSUITE_COMPLETE="source_bash")
    assert "_FEDSUITE_COMPLETE=complete_bash" in script
    assert "complete -o default -F _fedsuite_completion fedsuite" in script
