"""The page on using the model, followed: its commands and its programs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from following import ROOT

from fedsuite.cli.main import main
from tasks.inputs import TokenInputs

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "using-the-model.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r'```python title="(\w+\.py)"\n(.*?)```', PAGE, re.DOTALL))


def commands() -> list[list[str]]:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def test_its_commands_and_programs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands():
        assert main(words) == 0, words
    for name in ("predict.py", "use_torch.py", "use_onnx.py"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAMS[name]],
            env={"PYTHONPATH": str(ROOT) if name == "predict.py" else ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and re.search(r"\d", done.stdout), done.stderr
    document = json.loads((tmp_path / "runs" / "mine" / "model.json").read_text())
    told = re.findall(r"^\| (`.*?`) \|", PAGE.partition("## `model.json`")[2], re.MULTILINE)
    assert set(document) <= {key for cell in told for key in re.findall(r"`(\w+)`", cell)}


def test_its_ids_are_those_of_training() -> None:
    import pyarrow as pa

    inputs = TokenInputs("text", 4, ("the", "cat's"))
    space: dict[str, Any] = {}
    exec(PROGRAMS["ids.py"], space)
    for text in ("The CAT's mat", "", "the the the the the"):
        expected = inputs.encode(pa.table({"text": [text]}), str).tolist()[0]
        assert space["ids"](text, inputs.to_document()) == expected
