"""``make demo`` does what the README says: two runs on Ray, whom TACO expels, a page."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import processes
import pytest

from fedsuite.core.files import read_document

ROOT = Path(__file__).parents[1]


def commands() -> list[list[str]]:
    """Return the ``fedsuite`` commands of the demo, without their first word."""
    words = ["make", "--dry-run", "--old-file", ".venv/.ready", "demo"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    return [words[1:] for words in lines if Path(words[0]).name == "fedsuite"]


def test_the_demo_runs_both_methods_on_ray_and_ends_with_the_report() -> None:
    (taco, fedavg, compare, report) = commands()
    assert taco[:2] == ["run", "taco"] and fedavg[:2] == ["run", "fedavg"]
    assert taco[2:-1] == fedavg[2:-1] and taco[-3:-1] == ["ray", "--name"]
    assert compare[0] == "compare" and report[0] == "report"


@pytest.mark.ray
def test_the_demo_shows_who_is_expelled_and_how_the_two_compare(tmp_path: Path) -> None:
    said = []
    for words in commands():
        status, out = processes.finish(words, tmp_path)
        assert status == 0, out
        said.append(out)
    taco, fedavg, compared, reported = said
    assert "4 of 4 freeloaders, 0 of 6 honest clients: 6, 7, 8, 9" in taco
    assert "expelled" not in fedavg
    assert "difference from fedavg" in compared and "taco" in compared
    assert reported.startswith("demo/report/index.html")
    assert (tmp_path / "demo" / "report" / "index.html").is_file()
    summaries = [tmp_path / "demo" / "runs" / name / "summary.json" for name in ("taco", "fedavg")]
    ours, theirs = (read_document(path)["final_accuracy"] for path in summaries)
    assert ours > theirs + 0.1
