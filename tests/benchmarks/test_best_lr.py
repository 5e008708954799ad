"""The choice of learning rates from runs that were written down, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from benchmarks.best_lr import MARK, candidates, choose, main
from fedsuite.records.collection import open_collection
from fedsuite.suites.definition import read_suite

# Accuracies by method, split and rate, for seeds 101 and 102.
FEDAVG = {
    ("even", 0.1): (0.5, 0.7),
    ("even", 0.3): (0.8, 0.4),  # the same mean: the smaller rate is chosen
    ("skewed", 0.1): (0.2, 0.2),
    ("skewed", 0.3): (0.3, 0.2),
}
PFEDME = {  # by split, lr and personal-lr
    ("even", 0.1, 0.01): 0.5,
    ("even", 0.1, 0.03): 0.6,
    ("even", 0.3, 0.01): 0.4,
    ("skewed", 0.1, 0.01): 0.5,
    ("skewed", 0.1, 0.03): 0.4,
    ("skewed", 0.3, 0.01): 0.3,
}
TABLE = """title = "A table"
metric = "final_accuracy"
rows = "algo"
columns = ["split"]
runs = 8
runs-small = 8

[axes]
seed = [1, 2]

[axes.algo]
fedavg = {}
pfedme = {}
"pfedme (w)" = { algo = "pfedme", pfedme.scored = "w" }
local = {}

[axes.split]
even = { partition = "iid" }
skewed = { dirichlet-alpha = 0.1 }

[small]
lr = 0.05
"""


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A tuning suite of two methods and two splits."""
    runs: list[dict[str, Any]] = []

    def add(algo: str, labels: dict[str, Any], seed: int, value: float, **settings: Any) -> None:
        name = f"run{len(runs)}"
        write_run(tmp_path / "tuning", name, algo, [0.1, value], seed=seed, **settings)
        row = {"name": name, "labels": {**labels, "seed": seed}, "key": name}
        runs.append(row)

    for (split, lr), values in FEDAVG.items():
        for seed, value in zip((101, 102), values, strict=True):
            labels = {"algo": "fedavg", "split": split, "lr": lr}
            add("fedavg", labels, seed, value, lr=lr)
    for (split, lr, own), value in PFEDME.items():
        label = "pfedme" if own == 0.01 else f"pfedme, personal-lr {own}"
        labels = {"algo": label, "split": split, "lr": lr}
        for seed in (101, 102):
            add("pfedme", labels, seed, value, lr=lr, **{"pfedme.personal_lr": own})
    manifest: dict[str, Any] = {"name": "tuning", "scale": "small", "runs": runs}
    manifest |= {"metric": "final_accuracy"}
    manifest |= {"rows": "algo", "columns": ["split", "lr"], "planned": len(runs)}
    (tmp_path / "tuning" / "suite.json").write_text(json.dumps(manifest))
    return tmp_path / "tuning"


def test_the_best_of_each_method_and_split(tuned: Path) -> None:
    best = choose(candidates(open_collection(str(tuned))), "higher")
    chosen = {(algo, dict(place)["split"]): one.settings for (algo, place), one in best.items()}
    assert chosen == {
        ("fedavg", "even"): {"lr": 0.1},
        ("fedavg", "skewed"): {"lr": 0.3},
        ("pfedme", "even"): {"lr": 0.1, "pfedme.personal-lr": 0.03},
        ("pfedme", "skewed"): {"lr": 0.1, "pfedme.personal-lr": 0.01},
    }
    worst = choose(candidates(open_collection(str(tuned))), "lower")
    assert {one.settings["lr"] for (algo, _), one in worst.items() if algo == "pfedme"} == {0.3}


def test_personal_methods_are_chosen_by_personal_accuracy_where_a_suite_has_both(
    tuned: Path,
) -> None:
    """PFedMe is best on the even split at 0.1 and 0.03, unless personal accuracy says otherwise."""
    for name, personal in (("run8", 0.9), ("run9", 0.9), ("run0", 0.0), ("run1", 0.0)):
        summary = tuned / name / "summary.json"
        changed = json.loads(summary.read_text()) | {"personal_accuracy": personal}
        summary.write_text(json.dumps(changed))
    manifest = json.loads((tuned / "suite.json").read_text())
    both = manifest | {"also": [{"metric": "personal_accuracy", "better": "higher"}]}
    for document, rate in ((manifest, 0.03), (both, 0.01)):
        (tuned / "suite.json").write_text(json.dumps(document))
        best = choose(candidates(open_collection(str(tuned))), "higher")
        even = {algo: one.settings for (algo, place), one in best.items() if "even" in place[0]}
        assert even["pfedme"] == {"lr": 0.1, "pfedme.personal-lr": rate}
        assert even["fedavg"] == {"lr": 0.1}, "one with a global model alone: by that"


def test_the_whole_grid_is_printed(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tuned)]) == 0
    assert capsys.readouterr().out == (
        "even\n\n"
        "| method | 0.1 | 0.3 |\n"
        "| --- | ---: | ---: |\n"
        "| fedavg | **60.00** | 60.00 |\n"
        "| pfedme, pfedme.personal-lr 0.01 | 50.00 | 40.00 |\n"
        "| pfedme, pfedme.personal-lr 0.03 | **60.00** |  |\n\n"
        "skewed\n\n"
        "| method | 0.1 | 0.3 |\n"
        "| --- | ---: | ---: |\n"
        "| fedavg | 20.00 | **25.00** |\n"
        "| pfedme, pfedme.personal-lr 0.01 | **50.00** | 30.00 |\n"
        "| pfedme, pfedme.personal-lr 0.03 | 40.00 |  |\n"
    )


def test_the_choice_becomes_the_tables_overrides(tuned: Path, tmp_path: Path) -> None:
    """All rows of a tuned method get it, also under another label; local, not tuned, stays."""
    file = tmp_path / "mine.toml"
    file.write_text(TABLE.replace("= 8", "= 16"))
    for _ in range(2):
        assert main([str(tuned), "--into", str(file)]) == 0
    text = file.read_text()
    assert text.count(MARK) == 1 and "of tuning, seeds 101, 102." in text
    rates = {
        (plan.labels["algo"], plan.labels["split"]): (
            plan.settings["lr"],
            plan.settings.get("pfedme.personal-lr"),
        )
        for plan in read_suite(file, "small").plans
    }
    assert rates == {
        ("fedavg", "even"): (0.1, None),
        ("fedavg", "skewed"): (0.3, None),
        ("pfedme", "even"): (0.1, 0.03),
        ("pfedme", "skewed"): (0.1, 0.01),
        ("pfedme (w)", "even"): (0.1, 0.03),
        ("pfedme (w)", "skewed"): (0.1, 0.01),
        ("local", "even"): (0.05, None),
        ("local", "skewed"): (0.05, None),
    }
    assert all("lr" not in plan.settings for plan in read_suite(file).plans)


def test_a_tuning_without_columns_chooses_for_all_of_them(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FedAvg alone, on one split: its choice, 0.3, holds wherever the table has it."""
    manifest = json.loads((tuned / "suite.json").read_text())
    runs = [r for r in manifest["runs"] if r["labels"]["algo"] == "fedavg"]
    runs = [r for r in runs if r["labels"].pop("split") == "skewed"]
    manifest |= {"runs": runs, "planned": len(runs), "columns": ["lr"], "scale": "paper"}
    (tuned / "suite.json").write_text(json.dumps(manifest))
    file = tmp_path / "mine.toml"
    file.write_text(TABLE.replace("= 8", "= 16"))
    assert main([str(tuned), "--into", str(file)]) == 0
    assert capsys.readouterr().out.startswith("all\n\n| method | 0.1 | 0.3 |")
    assert '[[override]]\nwhen = { algo = "fedavg" }\nlr = 0.3\n' in file.read_text()
    rates = {(p.labels["algo"], p.settings.get("lr")) for p in read_suite(file).plans}
    assert rates == {("fedavg", 0.3), *((a, None) for a in ("pfedme", "pfedme (w)", "local"))}


def test_an_unfinished_tuning_chooses_nothing(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((tuned / "suite.json").read_text())
    manifest["planned"] += 1
    (tuned / "suite.json").write_text(json.dumps(manifest))
    assert main([str(tuned)]) == 2
    assert "1 of 21 runs are not done" in capsys.readouterr().err


def test_a_rate_at_which_a_run_failed_is_not_chosen(
    tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fedavg, skewed, lr 0.3 (runs 6 and 7) is the best until a seed of it fails."""
    summary = tuned / "run6" / "summary.json"
    failed = {"status": "failed", "reason": "metric 'loss' is nan"}
    summary.write_text(json.dumps(json.loads(summary.read_text()) | failed))
    assert main([str(tuned)]) == 0
    assert "| fedavg | **20.00** | failed |" in capsys.readouterr().out


def test_an_error_keeps_the_earlier_choice_and_what_follows_it_stays(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TABLE.replace("= 8", "= 16"))
    assert main([str(tuned), "--into", str(file)]) == 0
    added = '\n[[small.override]]\nwhen = { algo = "local" }\nlr = 0.7\n'
    file.write_text(file.read_text() + added)
    assert main([str(tuned), "--into", str(file)]) == 0
    text = file.read_text()
    assert text.count(MARK) == 1 and text.count(added.strip()) == 1
    file.write_text(text.replace("[axes]", "[axis]"))
    before = file.read_bytes()
    assert main([str(tuned), "--into", str(file)]) == 2
    assert "unknown key 'axis'" in capsys.readouterr().err and file.read_bytes() == before
