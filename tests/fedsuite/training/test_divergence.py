"""Training that diverges ends with a sentence that says so, not with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsuite.cli.main import main
from fedsuite.records.reader import read_run
from strategies.replies import is_divergence


@pytest.mark.parametrize("algo", ["fedavg", "taco", "fedadw", "pfedme", "fedtgp", "scaffold"])
def test_a_learning_rate_of_a_million(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lr=1e6", "num-clients=2", "num-rounds=2", "model=mlp", f"results-dir={tmp_path}"]
    assert main(["run", algo, *words, "--engine", "inline", "--name", "wild"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("training diverged: the loss or update of clients was not finite ")
    assert "Lower the learning rate (lr = 1e+06) in a new run; resuming would only repeat" in said
    assert "to resume it" not in said
    assert "Traceback" not in said and "File " not in said
    assert main(["show", str(tmp_path / "wild")]) == 0
    shown = capsys.readouterr().out
    assert "training diverged" in shown and "Traceback" not in shown
    note = read_run(tmp_path / "wild").note
    assert note.startswith("1 of 2 rounds; training diverged")


@pytest.mark.parametrize(
    ("reason", "diverged"),
    [
        ("metric 'loss' is nan", True),
        ("metric 'loss' is inf", True),
        ("vector 'update' has NaN or infinite values", True),
        ("metric 'loss' is 6e+307, beyond float32", True),
        ("metric 'loss' is not a number", False),
        ("Traceback\nRuntimeError: metric 'loss' is nan", False),
        ("no reply in time", False),
    ],
)
def test_what_counts_as_divergence(reason: str, diverged: bool) -> None:
    assert is_divergence(reason) == diverged
