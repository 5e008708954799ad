"""A line of ``runs.csv`` says where the run's numbers come from."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from fedsuite.records.collection import Collection
from fedsuite.records.folder import RunState
from fedsuite.records.reader import Run
from fedsuite.report.results import runs_csv


def line(meta: dict[str, Any], code: str = "") -> dict[str, str]:
    run = Run(Path("r"), RunState.FINISHED, config={"meta": meta}, labels={"seed": 1}, code=code)
    (found,) = csv.DictReader(io.StringIO(runs_csv(Collection("c", "C", [run]))))
    return found


def test_origin_of_a_run() -> None:
    meta = {
        "command": "fedsuite run taco seed=1 data-root=/home/me/data lr=0.1",
        "engine": "inline",
        "split-fingerprint": "ab12",
        "python": "3.11.7",
        "versions": {"torch": "2.15.0", "flwr": "1.39.0"},
        "machine": "x86_64, 2 cores, Linux",
    }
    found = line(meta, code="c0de")
    assert found["command"] == "fedsuite run taco seed=1 data-root=DIR lr=0.1"
    assert found["versions"] == "python=3.11.7 torch=2.15.0 flwr=1.39.0"
    assert (found["split_fingerprint"], found["code_fingerprint"]) == ("ab12", "c0de")
    assert (found["engine"], found["machine"]) == ("inline", "x86_64, 2 cores, Linux")


@pytest.mark.parametrize("word", ["data-root=/d", "'data-root=/my data'"])
def test_the_folder_of_the_data_is_left_out_as_the_shell_quotes_it(word: str) -> None:
    assert line({"command": f"fedsuite run taco {word}"})["command"].endswith(" data-root=DIR")


def test_a_run_without_a_record_of_its_origin() -> None:
    assert line({})["command"] == "" and line({})["versions"] == ""
