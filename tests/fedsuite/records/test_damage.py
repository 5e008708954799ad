"""Whatever is wrong with a run's files, every command says so in a sentence and goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.records.reader import read_run

pytestmark = pytest.mark.slow

Damage = Callable[[Path], object]
FILES = {
    "config": "config.json",
    "summary": "summary.json",
    "history": "history.jsonl",
    "clients": "clients.jsonl",
}
# What any of the files may have become.
CONTENTS = {
    "empty": b"",
    "cut": b'{"algo": "fed',
    "list": b"[1, 2]\n",
    "text": b'"finished"\n',
    "number": b"3\n",
    "null": b"null\n",
    "nested": b"[" * 100_000 + b"\n",
    "binary": bytes(range(256)),
    "object": b'{"a": {"b": [null]}}\n',
}
# Values that a file may have instead of its own.
VALUES: dict[str, list[tuple[str, Any]]] = {
    "config": [
        ("num-rounds", "many"),
        ("num-rounds", 0),
        ("num-clients", None),
        ("num-clients", 10**400),
        ("seed", []),
        ("algo", 5),
        ("algo", "nosuch"),
        ("dataset", {}),
        ("target-accuracy", "high"),
        ("freeloaders", "zz"),
        ("taco.kappa", [1]),
        ("unknown", 1),
        ("run-id", None),
        ("run-id", ""),
        ("meta", "x"),
        ("meta", {"command": 5, "machine": None}),
        ("meta", {"versions": 3}),
    ],
    "summary": [
        ("status", 7),
        ("status", ["finished"]),
        ("status", "running"),
        ("final_accuracy", "0.5"),
        ("final_accuracy", float("nan")),
        ("best_accuracy", [0.5]),
        ("wall_seconds", {}),
        ("expelled", "all"),
        ("expelled", ["a"]),
        ("reason", 5),
        ("missing_updates", "x"),
        ("other_output_accuracy", 3),
        ("unsaved_models", "1"),
        ("upload_bytes", 10**400),
    ],
    "history": [
        ("round", "1"),
        ("round", None),
        ("round", True),
        ("round", -1),
        ("round", 10**400),
        ("accuracy", "0.5"),
        ("accuracy", {}),
        ("accuracy", float("nan")),
        ("accuracy", float("inf")),
        ("wall_seconds", "x"),
        ("clients", "4"),
        ("note", 5),
        ("reliability_coupling", "x"),
    ],
    "clients": [
        ("round", "1"),
        ("client", "a"),
        ("client", [1]),
        ("accuracy", "0.5"),
        ("reason", 5),
        ("phase", None),
        ("alpha", {}),
        ("alpha", "x"),
        ("status", 1),
    ],
}


def write(file: str, content: bytes) -> Damage:
    return lambda folder: (folder / file).write_bytes(content)


def put(file: str, key: str, value: Any) -> Damage:
    """Put a value into a JSON file, or into every line of one."""

    def damage(folder: Path) -> None:
        path = folder / file
        lines = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
        changed = [json.dumps(json.loads(line) | {key: value}) + "\n" for line in lines]
        path.write_text("".join(changed))

    return damage


def become_folder(file: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return damage


def damages() -> Iterator[Any]:
    for kind, file in FILES.items():
        for name, content in CONTENTS.items():
            yield pytest.param(write(file, content), id=f"{kind}-{name}")
        yield pytest.param(become_folder(file), id=f"{kind}-folder")
        for key, value in VALUES[kind]:
            yield pytest.param(put(file, key, value), id=f"{kind}-{key}={str(value)[:20]}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two good runs, and one to be damaged."""
    folder = tmp_path_factory.mktemp("whole")
    write_run(folder, "one", "fedavg", [0.1, 0.5])
    write_run(folder, "two", "fedprox", [0.1, 0.6])
    write_run(folder, "hurt", "taco", [0.1, 0.4], expelled=[3], target_accuracy=0.3)
    return folder


@pytest.fixture
def runs(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "runs"))


def say(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(list(words))
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert said.strip() and "Traceback" not in said, said
    return status, said


@pytest.mark.parametrize("damage", list(damages()))
def test_every_command_says_a_sentence(
    runs: Path, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(runs / "hurt")
    here = ["--results-dir", str(runs)]
    assert say(capsys, "show", "hurt", *here)[0] == 0
    assert say(capsys, "watch", "hurt", "--once", *here)[0] in (0, 1, 3)
    status, listed = say(capsys, "list", "runs", *here)
    assert status == 0 and [line.split()[0] for line in listed.splitlines()] == [
        "hurt",
        "one",
        "two",
    ]
    assert say(capsys, "compare", "one", "two", "hurt", *here)[0] == 0
    status, said = say(capsys, "resume", "hurt", "--engine", "inline", *here)
    assert status in (0, 2) and said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_report_has_all_damaged_runs_beside_the_good_ones(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    for number, param in enumerate(damages()):
        names.append(f"hurt-{number}")
        shutil.copytree(runs / "hurt", runs / names[-1])
        param.values[0](runs / names[-1])
    assert say(capsys, "report", str(runs), "-o", str(tmp_path / "out"))[0] == 0
    page = (tmp_path / "out" / "report.md").read_text()
    assert all(f"| {name} |" in page for name in [*names, "one", "two"])
    for name in names:
        assert say(capsys, "report", str(runs / name), "-o", str(tmp_path / name))[0] == 0
        if read_run(runs / name).state != "broken":
            break  # the page of a broken run is quick, and of another one enough


@pytest.mark.parametrize(
    ("damage", "note"),
    [
        (put("config.json", "num-rounds", "many"), "num-rounds cannot be 'many'"),
        (put("config.json", "meta", "x"), "meta cannot be 'x'"),
        (write("config.json", b"[]"), "config.json holds no JSON object"),
        (put("summary.json", "final_accuracy", "0.5"), "final_accuracy cannot be '0.5'"),
        (put("summary.json", "status", "running"), "unknown status: 'running'"),
        (put("summary.json", "expelled", "all"), "expelled cannot be 'all'"),
    ],
)
def test_what_is_wrong_is_named(runs: Path, damage: Damage, note: str) -> None:
    damage(runs / "hurt")
    run = read_run(runs / "hurt")
    assert run.state == "broken" and note in run.note


def test_rounds_and_clients_of_a_wrong_type_are_left_out(runs: Path) -> None:
    put("history.jsonl", "accuracy", "0.5")(runs / "hurt")
    put("clients.jsonl", "client", "a")(runs / "two")
    assert read_run(runs / "hurt").history == []
    assert (
        read_run(runs / "hurt").damage() == "lines 1, 2 of history.jsonl are damaged and left out"
    )
    assert read_run(runs / "two").clients() == []
    assert "of clients.jsonl are damaged and left out" in read_run(runs / "two").damage()


@pytest.mark.parametrize("name", CONTENTS)
def test_a_damaged_manifest_is_a_sentence(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "suite.json").write_bytes(CONTENTS[name])
    for words in (["report", str(tmp_path), "-o", str(tmp_path / "out")], ["compare"]):
        status, said = say(capsys, *words, *([str(tmp_path)] if len(words) == 1 else []))
        assert status == 2 and "suite.json" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runs", {}),
        ("runs", ["one"]),
        ("runs", [{"name": 3, "labels": {}}]),
        ("runs", [{"name": "one", "labels": "seed"}]),
        ("runs", [{"name": "one", "labels": {"algo": []}}]),
        ("rows", ["algo"]),
        ("columns", "dataset"),
        ("columns", [1]),
        ("metric", 5),
        ("title", None),
        ("also", [5]),
        ("planned", "all"),
        ("paper", [{"labels": [], "value": 1}]),
        ("paper", [{"labels": {}, "value": "x"}]),
    ],
)
def test_a_manifest_with_a_value_of_a_wrong_type_is_a_sentence(
    suite: Path, tmp_path: Path, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((suite / "suite.json").read_text()) | {key: value}
    (tmp_path / "suite.json").write_text(json.dumps(document))
    status, said = say(capsys, "compare", str(tmp_path))
    assert status == 2 and "is not a suite's manifest" in said and said.count("\n") == 1
