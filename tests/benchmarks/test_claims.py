"""Claims are judged by a rule worked out by hand, and the page says nothing but what rows give."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from figures import assert_same_figures
from run_folders import write_run

from benchmarks.claims.__main__ import IMAGES, PAGE, check, draw_figures, page
from benchmarks.claims.page import Page, interval, measured, summary_sentence
from benchmarks.claims.rows import FOLDER, collect, late_mean, read, stale
from benchmarks.claims.rules import Claim, Finding, Verdict, judge, read_claims
from fedsuite.core.settings import UserError
from fedsuite.records.folder import DIVERGED
from fedsuite.suites.code_version import code_version
from fedsuite.suites.definition import read_suite

T_TWO = 4.302652729911275  # Student's t, 97.5 %, two degrees of freedom
SUITES = Path(__file__).parents[2] / "sim_configs" / "suites"
OURS = {"algo": "new", "dataset": "d"}


def rows(metric: str = "final_accuracy", **values: Sequence[float | None]) -> list[dict[str, str]]:
    return [
        {"algo": algo, "dataset": "d", "seed": str(seed), metric: "" if v is None else str(v)}
        for algo, found in values.items()
        for seed, v in enumerate(found)
    ]


def claim(**changes: Any) -> Claim:
    known = {"metric": "final_accuracy", "ours": OURS, "than": [{"algo": "old"}]}
    return Claim(
        **{"paper": "P", "where": "Table 1", "says": "s", "suite": "x", **known, **changes}
    )


def test_a_comparison_by_hand() -> None:
    """Differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, half width t * 0.1 / sqrt(3) = 0.248."""
    found = judge(claim(), rows(new=[0.6, 0.7, 0.8], old=[0.5, 0.5, 0.5]))
    assert found.interval is not None and found.interval.mean == pytest.approx(0.2)
    half = T_TWO * 0.1 / math.sqrt(3)
    assert found.interval.low == pytest.approx(0.2 - half)
    assert found.verdict is Verdict.NOT_SHOWN, "its interval reaches below zero"
    assert measured(found) == "70.00 / 50.00" and interval(found) == "+20.00 (-4.84 to +44.84)"


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([0.60, 0.61, 0.62], Verdict.SHOWN),
        ([0.40, 0.39, 0.38], Verdict.OPPOSITE),
        ([0.60, 0.61], Verdict.TOO_FEW),
        ([], Verdict.NOT_RUN),
    ],
)
def test_the_interval_alone_decides(new: list[float], verdict: Verdict) -> None:
    assert judge(claim(), rows(new=new, old=[0.5, 0.5, 0.5])).verdict is verdict


def test_seeds_that_agree_to_the_last_digit_show_nothing() -> None:
    assert judge(claim(), rows(new=[0.6] * 3, old=[0.5] * 3)).verdict is Verdict.NOT_SHOWN


def test_fewer_rounds_are_in_favour_and_a_missed_target_is_no_number() -> None:
    metric = "rounds_to_target"
    fewer = judge(claim(metric=metric), rows(metric, new=[5, 6, 7], old=[20, 22, 21]))
    assert fewer.verdict is Verdict.SHOWN and fewer.interval is not None
    assert fewer.interval.mean == pytest.approx(15)
    missed = judge(claim(metric=metric), rows(metric, new=[5, 6, None], old=[20, 22, 21]))
    assert missed.verdict is Verdict.TOO_FEW


def test_several_comparisons_are_judged_by_the_worst() -> None:
    several = claim(than=[{"algo": "old"}, {"algo": "best"}])
    seen = rows(new=[0.60, 0.61, 0.62], old=[0.5] * 3)
    worst = judge(several, seen + rows(best=[0.70, 0.72, 0.71]))
    assert worst.verdict is Verdict.OPPOSITE and worst.against == {"algo": "best"}
    missing = judge(several, seen)
    assert missing.verdict is Verdict.NOT_RUN and measured(missing) == "–", "one side is missing"
    assert judge(several, seen + rows(best=[0.55, 0.56, 0.55])).verdict is Verdict.SHOWN


@pytest.mark.parametrize(("least", "verdict"), [(0.5, Verdict.SHOWN), (0.6, Verdict.NOT_SHOWN)])
def test_a_level_is_shown_if_the_whole_interval_is_within(least: float, verdict: Verdict) -> None:
    """Mean 0.61, deviation 0.01: from 0.585 to 0.635."""
    found = judge(claim(than=(), least=least), rows(new=[0.60, 0.61, 0.62]))
    assert found.verdict is verdict and interval(found) == "61.00 (58.52 to 63.48)"


@pytest.mark.parametrize(
    "table",
    [{}, {"cannot": "no data", "least": 0.1}, {"than": [{"algo": "old"}], "suite": "x"}],
)
def test_a_claim_that_nothing_decides_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        read_claims({"claim": [{"paper": "P", "where": "w", "says": "s", **table}]})


def test_a_mean_over_the_second_half_of_the_rounds() -> None:
    history = [{"round": r, "x": r if r != 4 else None} for r in range(1, 5)]
    assert late_mean(history, "x") == 3.0 and late_mean(history, "y") is None


def test_a_reading_tried_afterwards_is_not_counted() -> None:
    """What was chosen once the results were seen must not add to what is shown."""
    base: dict[str, Any] = {
        "suite": "x",
        "metric": "final_accuracy",
        "ours": OURS,
        "than": [{"algo": "old"}],
    }
    both = [{"paper": "P", "where": "w", "says": says, **base} for says in ("first", "later")]
    both[1]["afterwards"] = True
    texts = {key: key for key in ("title", "introduction", "rule", "afterwards", "origin")}
    found = [
        {**row, "engine": "e", "machine": "m", "versions": "v"}
        for row in rows(new=[0.60, 0.61, 0.62], old=[0.5, 0.5, 0.5])
    ]
    text = Page({**texts, "claim": both, "paper": [{"name": "P"}]}, lambda _: found).text()
    assert "| claims of | shown |" in text and "| all four | 1 |" in text
    assert text.count("**shown**") == 1 and text.count("above zero") == 1


def test_the_page_is_what_the_rows_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page().text(), "python -m benchmarks.claims write"


def test_the_figures_are_what_the_rows_give(tmp_path: Path) -> None:
    draw_figures(page(), tmp_path)
    assert_same_figures(tmp_path, IMAGES)


def test_rows_have_their_origin() -> None:
    files = [file for file in FOLDER.glob("*.csv") if not file.name.endswith(".rounds.csv")]
    assert files
    for file in files:
        for row in csv.DictReader(file.open(encoding="utf-8", newline="")):
            for name in ("command", "seed", "split_fingerprint", "code_fingerprint", "versions"):
                assert row[name], f"{file.name}: {row['run']} lacks {name}"
            data = [word for word in row["command"].split() if word.startswith("data-root=")]
            assert data == ["data-root=DIR"]


def labels(finding: Finding) -> list[dict[str, object]]:
    ours = finding.claim.ours
    return [dict(ours), *({**ours, **other} for other in finding.claim.than)]


def test_the_front_of_the_readme_sums_up_the_verdicts() -> None:
    readme = " ".join((SUITES.parents[1] / "README.md").read_text(encoding="utf-8").split())
    assert summary_sentence(page().findings) in readme


def test_claims_speak_of_runs_of_their_suites() -> None:
    """A label that no run of the suite has would be "not run yet" for ever."""
    findings = [finding for finding in page().findings if not finding.claim.cannot]
    suites = {finding.claim.suite for finding in findings}
    plans = {suite: read_suite(SUITES / f"{suite}.toml").plans for suite in suites}
    for finding in findings:
        for wanted in labels(finding):
            assert any(
                all(str(plan.labels.get(name)) == str(v) for name, v in wanted.items())
                for plan in plans[finding.claim.suite]
            ), (finding.claim.where, wanted)


def test_rows_of_a_suite_that_was_not_run_are_none(tmp_path: Path) -> None:
    assert read("no_such_suite", tmp_path) == []


def write_suite(folder: Path, reasons: Mapping[str, str], final: float = 0.2) -> Path:
    """Write a suite's runs, a seed each; those with a reason failed for it."""
    for seed, (name, reason) in enumerate(reasons.items()):
        run = write_run(folder, name, "fedavg", [0.1, final], seed=seed)
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"status": "failed", "reason": reason} if reason else {}
        (run / "summary.json").write_text(json.dumps(summary))
    runs = [
        {"name": name, "labels": {"algo": "fedavg", "seed": seed}, "key": name}
        for seed, name in enumerate(reasons)
    ]
    manifest: dict[str, Any] = {
        "name": "tried",
        "scale": "paper",
        "runs": runs,
        "metric": "final_accuracy",
    }
    manifest |= {"rows": "algo", "columns": [], "planned": len(runs)}
    (folder / "suite.json").write_text(json.dumps(manifest))
    return folder


def test_runs_that_diverged_are_collected_and_those_that_merely_failed_are_not(
    tmp_path: Path,
) -> None:
    """To drop what diverged would judge a method by the seeds it survived."""
    reasons = {"ended": "", "diverged": f"{DIVERGED}the loss was not finite", "lost": "no disk"}
    collect(write_suite(tmp_path / "tried", reasons), tmp_path / "rows")
    rows = read("tried", tmp_path / "rows")
    assert [(row["run"], row["state"]) for row in rows] == [
        ("ended", "finished"),
        ("diverged", "failed"),
    ]
    assert rows[1]["final_accuracy"] == "0.2", "with the model it stopped at"


def test_a_part_that_was_run_elsewhere_joins_the_rows_that_are_there(tmp_path: Path) -> None:
    """The first seed again, under the name that changed settings give it, and two others."""
    rows = tmp_path / "rows"
    collect(write_suite(tmp_path / "here", {"s0": "", "s1": "", "s2": "no disk"}), rows)
    collect(write_suite(tmp_path / "away", {"again": "", "late": "no disk", "s2": ""}, 0.3), rows)
    assert [(row["run"], row["seed"], row["final_accuracy"]) for row in read("tried", rows)] == [
        ("again", "0", "0.3"),
        ("s1", "1", "0.2"),
        ("s2", "2", "0.3"),
    ]
    last = [row for row in read("tried.rounds", rows) if row["round"] == "1"]
    assert {row["run"]: row["accuracy"] for row in last} == {
        "again": "0.3000",
        "s1": "0.2000",
        "s2": "0.3000",
    }


def test_rows_of_a_suite_that_has_a_further_label_since_keep_theirs(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    suite = write_suite(tmp_path / "suite", {"s0": ""})
    collect(suite, rows)
    manifest = json.loads((suite / "suite.json").read_text())
    manifest["runs"][0]["labels"]["unit"] = "mean"
    (suite / "suite.json").write_text(json.dumps(manifest))
    collect(suite, rows)
    found = read("tried", rows)
    assert [(row["unit"], row["state"]) for row in found] == [
        ("", "finished"),
        ("mean", "finished"),
    ]
    assert list(found[0])[:5] == ["run", "algo", "seed", "unit", "scale"]


def made_by(fingerprint: str) -> dict[str, str]:
    return {"command": "fedsuite run taco lr=0.1", "code_fingerprint": fingerprint}


def test_rows_of_other_code_are_told_by_their_methods_fingerprint() -> None:
    mine, other = made_by("abc"), made_by("def")
    assert stale([mine, other], {"taco": "abcdef"}.__getitem__) == [other]


def test_the_check_names_suites_and_fails_if_rows_are_of_other_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(name: str, *fingerprints: str) -> None:
        lines = [",".join(made_by("")), *(",".join(made_by(f).values()) for f in fingerprints)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")

    now = code_version("taco")[:16]
    write("one.csv", now, now)
    write("one.rounds.csv", "not looked at")
    assert check(tmp_path) == 0
    write("two.csv", now, "of last year")
    capsys.readouterr()
    assert check(tmp_path) == 1
    assert capsys.readouterr().out == "one: 2 of 2 by this code\ntwo: 1 of 2 by this code\n"
