"""A report is made of what the runs' files say."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.metrics import METRICS
from fedsuite.records.collection import open_collection
from fedsuite.records.folder import RunState
from fedsuite.records.reader import Run
from fedsuite.records.writer import RunRecord
from fedsuite.report import html, markdown
from fedsuite.report.build import build, make_report
from fedsuite.report.curves import mean_curve
from fedsuite.report.diagnostic_tables import mean_tables
from fedsuite.report.document import Document, Paragraph, ReportTable, Section
from fedsuite.report.label_distribution import label_distribution
from fedsuite.report.method_styles import FIXED, styles_for
from fedsuite.report.results import results_table

ACCURACY = METRICS["accuracy"]


def test_the_table_by_hand(report: Path) -> None:
    """TACO: 62 and 64, mean 63, deviation sqrt(2) = 1.41; FedADW: 77.3 and 79.6."""
    text = (report / "report.md").read_text()
    assert "| taco | 63.00 ± 1.41 | 60.00 ± 0.50 | +3.00 |" in text
    assert "| fedadw | **78.45 ± 1.63** | – | – |" in text
    assert text.count("**78.45") == 1 and "Paper: Paper, Table I." in text
    assert "Bold: apart from every other method." in text
    rows = {row["algo"]: row for row in csv.DictReader((report / "results.csv").open())}
    assert rows["taco"]["mean"] == "63.0000" and rows["taco"]["difference"] == "3.0000"
    assert rows["taco"]["dataset"] == "digits" and rows["taco"]["seeds"] == "2"
    assert rows["fedavg"]["paper"] == "" and rows["fedavg"]["scale"] == "small"
    assert len(list(csv.DictReader((report / "runs.csv").open()))) == 12


def test_scores_by_class_by_hand(report: Path) -> None:
    """TACO's last accuracies are 62 and 64: macro-F1 0.9 of them, class 1 half of them."""
    text = (report / "report.md").read_text()
    section = text[text.index("Scores by class") :]
    assert "| algo | setting | macro-F1 | balanced accuracy |" in section
    assert "| taco | digits | 56.70 ± 1.27 | 63.00 ± 1.41 |" in section
    assert "| algo | 0 | 1 |" in section and "| taco | 63.0 | 31.5 |" in section


def test_runs_to_other_targets_are_not_compared(tmp_path: Path) -> None:
    for algo, metric in (("fedavg", "accuracy"), ("taco", "macro-f1")):
        target: dict[str, Any] = {"target_accuracy": 0.4, "target_metric": metric}
        write_run(tmp_path, algo, algo, [0.1, 0.42, 0.5], **target)
    table = results_table(open_collection(str(tmp_path)), "rounds_to_target", "lower")
    assert isinstance(table, ReportTable)
    assert table.headings[1].endswith("accuracy, target 40 %")
    assert table.headings[2].endswith("macro-f1, target 40 % macro-f1")
    assert [list(row) for row in table.rows] == [["fedavg", "1.0", "–"], ["taco", "–", "2.0"]]


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_further_metrics_stand_beside_their_own_numbers(suite: Path, tmp_path: Path) -> None:
    """TACO reaches 60 % in round 2 of both seeds, the paper in 3.5; FedAvg never does."""
    shutil.copytree(suite, tmp_path / "suite")
    manifest = json.loads((tmp_path / "suite" / "suite.json").read_text())
    place = {"algo": "taco", "dataset": "digits"}
    number = {"metric": "rounds_to_target", "labels": place, "value": 3.5, "source": "Table V"}
    number["target"] = 0.6
    manifest |= {"also": [{"metric": "rounds_to_target", "better": "lower"}], "note": "Mind it."}
    manifest["paper_also"] = [number]
    (tmp_path / "suite" / "suite.json").write_text(json.dumps(manifest))
    make_report(str(tmp_path / "suite"), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| taco | 2.0 ± 0.0 ≈ | 3.5 | -1.5 |" in text and "| fedavg | none of 2 |" in text
    assert "| algo | digits, target 60 % | paper | difference |" in text
    assert "lower is better. ≈: the best, or not apart from it." in text
    assert "Paper: Table V." in text and "\n\nMind it.\n" in text
    assert "| taco | 63.00 ± 1.41 | 60.00 ± 0.50 | +3.00 |" in text
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").open()))
    taco = {row["metric"]: row for row in rows if row["algo"] == "taco"}
    assert taco["final accuracy (%)"]["difference"] == "3.0000"
    assert taco["rounds to target"]["difference"] == "-1.5000"


def test_coefficients_of_groups_by_hand(tmp_path: Path) -> None:
    """Clients 0 to 3 are A, B, C and a freeloader; round 2 has 0.2 client + 0.1 seed.

    Over seeds 1 and 2 that is 0.15, 0.35, 0.55 and 0.75, each ± 0.1 / sqrt(2) = 0.07. Round 1 has
    0.9, which is given to it and left out.
    """
    entries = []
    for seed in (1, 2):
        options: dict[str, Any] = {"seed": seed, "partition": "groups", "freeloaders": "1"}
        folder = write_run(tmp_path / "mine", f"taco-s{seed}", "taco", [0.1, 0.4, 0.6], **options)
        rows = [json.loads(line) for line in (folder / "clients.jsonl").read_text().splitlines()]
        for row in rows:
            late = row["round"] > 1
            row["alpha"] = 0.2 * row["client"] + 0.1 * seed if late else 0.9
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "clients.jsonl").write_text(lines)
        labels = {"algo": "taco", "dataset": "FMNIST", "seed": seed}
        entries.append({"name": folder.name, "labels": labels, "key": folder.name})
    number = {"metric": "alpha", "labels": {"group": "A", "dataset": "FMNIST"}, "value": 0.18}
    manifest = {"name": "mine", "rows": "algo", "columns": ["dataset"], "runs": entries}
    manifest["paper_also"] = [number | {"std": 0.09, "source": "Table II"}]
    (tmp_path / "mine" / "suite.json").write_text(json.dumps(manifest))
    (table,) = mean_tables(open_collection(str(tmp_path / "mine")))
    assert [list(row) for row in table.rows] == [
        ["taco", "A", "0.15 ± 0.07", "0.18 ± 0.09", "-0.03"],
        ["taco", "B", "0.35 ± 0.07", "–", "–"],
        ["taco", "C", "0.55 ± 0.07", "–", "–"],
        ["taco", "freeloaders", "0.75 ± 0.07", "–", "–"],
    ]


def test_couplings_are_those_of_the_later_half(tmp_path: Path) -> None:
    """Rounds 3 and 4 of four: (0.3 + 0.5) / 2."""
    folder = write_run(tmp_path, "one", "fedbac", [0.1, 0.2, 0.3, 0.4, 0.5])
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for row, coupling in zip(rows, (None, 0.9, 0.9, 0.3, 0.5), strict=True):
        row |= {"reliability_coupling": coupling}
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (table,) = mean_tables(open_collection(str(folder)))
    assert list(table.rows[0]) == ["fedbac", "reliability and accuracy", "0.40"]


def test_words_line_up_on_the_left_and_numbers_on_the_right() -> None:
    cells = [["taco", "1.50 ± 0.2", "–", "+3.0", "A", "none of 2"], ["x", "", "-2", "7", "9", "1"]]
    table = ReportTable(list("abcdef"), cells)
    assert table.left_aligned == [True, False, False, False, True, False]
    assert "| --- | ---: | ---: | ---: | --- | ---: |" in markdown.table(table)
    page = html.render(Document("t", "", [Section("s", [table])]), {})
    assert '<td class="left">A</td>' in page and "<td>7</td>" in page
    assert ReportTable(["a", "b"], []).left_aligned == [True, False]


def test_expulsions_are_told(report: Path) -> None:
    """Both runs of TACO expelled their freeloader, client 3, and nobody else."""
    text = (report / "report.md").read_text()
    assert "Clients were expelled in 2 of 12 runs, honest ones in 0;" in text
    assert text.count("expelled 1 of 1 freeloaders, 0 of 3 honest clients: 3") == 2


def test_an_honest_client_that_was_expelled_is_told(tmp_path: Path) -> None:
    write_run(tmp_path, "one", "taco", [0.1, 0.5], expelled=[0, 2])
    write_run(tmp_path, "two", "fedavg", [0.1, 0.5])
    text = markdown.render(build(open_collection(str(tmp_path))))
    assert "Clients were expelled in 1 of 2 runs, honest ones in 1;" in text
    assert "expelled 2 of 4 honest clients: 0, 2" in text


def test_all_sections_are_filled(report: Path) -> None:
    text = (report / "report.md").read_text()
    parts = re.split(r"\n## ", text)[1:]
    assert len(parts) == 11
    for name in ("by round", "compute time", "per client", "Diagnostics", "Label"):
        part = next(p for p in parts if name in p.splitlines()[0])
        assert "![" in part, name
    saw = next(p for p in parts if p.startswith("Diagnostics of the methods"))
    for view in ("coefficients", "expelled", "concentration", "judged biased", "direction"):
        assert view in saw
    for view in ("reliability", "coupling with accuracy", "weight by discrepancy"):
        assert view in saw
    assert "No diagnostics of their own: fedavg, fedprox." in saw
    assert "fedsuite suite demo.toml --scale small" in text and "Seeds: 1, 2." in text
    assert "60 % | 2 of 2 | 2.0 ± 0.0 | 0.50 ± 0.00 |" in text


def test_pictures_are_there_in_all_forms(report: Path) -> None:
    names = re.findall(r"\(figures/(.+?)\.png\)", (report / "report.md").read_text())
    assert len(names) > 10 and len(set(names)) == len(names)
    for name in names:
        assert (report / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (report / "figures" / f"{name}.svg").read_text()
        assert (report / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_bands_and_boxes_are_explained_below_them(report: Path) -> None:
    page, text = (report / "index.html").read_text(), (report / "report.md").read_text()
    for document in (page, text):
        assert "Lines: mean over 2 seeds. Bands: ± one sample standard deviation." in document
        assert "Boxes: quartiles and median" in document
    assert page.count("<figcaption>") >= page.count("<figure") - 1


def test_the_page_needs_nothing_else(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert not re.search(r"<script|<link|src=|@import|url\((?!#)", page)
    outside = set(re.findall(r"https?://[^\"'\s<]+", page))
    assert all(address.startswith("http://www.w3.org/") for address in outside)
    ids = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert all(count == 1 for count in ids.values())
    assert page.count("<svg") == page.count('role="img" aria-label="')
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert reference in ids


def test_small_scale_is_said_everywhere(report: Path) -> None:
    page, text = (report / "index.html").read_text(), (report / "report.md").read_text()
    for document in (page, text):
        assert "Small scale: fewer rounds or less data than in the paper" in document
        assert "A demonstration (small scale)" in document
    for path in (report / "figures").glob("*.svg"):
        assert "(small" in path.read_text(), path.name


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(report: Path, suite: Path, tmp_path: Path) -> None:
    make_report(str(suite), tmp_path)
    for path in sorted(report.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(report)).read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_folder_of_odd_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    write_run(runs, "good", "fedavg", [0.1, 0.5])
    write_run(runs, "bad", "fedavg", [0.1, 0.5], status="failed", seed=1)
    write_run(runs, "left", "taco", [0.1, 0.5], status="", num_rounds=9)
    (runs / "hollow").mkdir()
    (runs / "cut").mkdir()
    (runs / "cut" / "config.json").write_text("{")
    live = parse({"results-dir": str(runs), "run-name": "live", "algo": "fedbac"})
    record = RunRecord.create(live, {"engine": "inline"})
    record.add_round({"round": 0, "accuracy": 0.1, "wall_seconds": 0.1}, [])
    assert main(["report", str(runs), "-o", str(tmp_path / "out")]) == 0
    assert str(tmp_path / "out" / "index.html") in capsys.readouterr().out
    text = (tmp_path / "out" / "report.md").read_text()
    record.close()
    states = "1 broken, 1 empty, 1 failed, 1 finished, 1 not finished, 1 running"
    assert f"6 runs: {states}." in text and f"0 of {live.num_rounds} rounds" in text
    assert "no room left" in text and "the folder is empty" in text and "not valid JSON" in text
    assert "| fedavg | 50.00 |" in text and "| taco | – |" in text
    assert "taco (not finished)" in (tmp_path / "out" / "index.html").read_text()


def test_nothing_but_broken_runs(tmp_path: Path) -> None:
    (tmp_path / "runs" / "hollow").mkdir(parents=True)
    make_report(str(tmp_path / "runs"), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    for sentence in (
        "No finished run has a value of final accuracy yet.",
        "No run has recorded accuracies yet.",
        "No target was set",
        "No run has accuracies per client",
        "No run has recorded a round yet.",
        "no split to draw",
        "No finished run has recorded its communication yet.",
        "No run's settings can be read.",
    ):
        assert sentence in text


def test_a_split_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "moved", "fedavg", [0.1, 0.5])
    config = folder / "config.json"
    away = tmp_path / "away"
    config.write_text(config.read_text().replace('"data-root": ""', f'"data-root": "{away}"'))
    (said,) = label_distribution(open_collection(str(folder)))
    assert isinstance(said, Paragraph) and "the split cannot be reconstructed here" in said.text
    config.write_text(config.read_text().replace(f'"data-root": "{away}"', '"data-root": ""'))
    mark = re.search(r'"split-fingerprint": "(.+?)"', config.read_text())
    assert mark is not None
    config.write_text(config.read_text().replace(mark[1], "changed"))
    (said,) = label_distribution(open_collection(str(folder)))
    assert isinstance(said, Paragraph) and "the run's was changed" in said.text


def test_a_mean_curve_by_hand() -> None:
    """Rounds 1 and 2 are common; 0.5 and 0.7 give 60 ± 14.14 per cent at (2 + 4) / 2 seconds."""
    curves = [[(0, 0.1), (1, 0.5), (2, 0.8)], [(1, 0.7), (2, 0.8), (3, 0.9)]]
    clocks = [{1: 2.0, 2: 5.0}, {1: 4.0, 2: 7.0}]
    xs, ys, low, high = mean_curve(ACCURACY, curves, clocks) or ((), (), (), ())
    assert list(xs) == [3.0, 6.0] and list(ys) == pytest.approx([60.0, 80.0])
    assert low is not None and high is not None
    assert low[0] == pytest.approx(60 - 200**0.5) and high[1] == pytest.approx(80.0)
    assert mean_curve(ACCURACY, [], []) is None
    assert mean_curve(ACCURACY, [[(1, 0.5)], [(2, 0.5)]], [{}, {}]) is None


def test_a_method_always_looks_the_same() -> None:
    looks = {(style.colour, style.line) for style in FIXED.values()}
    assert len(looks) == len(FIXED)
    assert styles_for(["taco", "mine"])["taco"] == styles_for(["fedavg", "taco"])["taco"]
    assert styles_for(["taco (kappa=0.7)", "fedavg"])["taco (kappa=0.7)"] == FIXED["taco"]
    assert len({style.colour for style in styles_for("abcdefg").values()}) == 7
    many = styles_for([f"method {n}" for n in range(25)])
    assert len({(style.colour, style.line) for style in many.values()}) == 25


def test_a_missing_run_leaves_the_paper_standing(suite: Path) -> None:
    collection = open_collection(str(suite))
    absent = [Run(r.folder, RunState.NOT_STARTED, labels=r.labels) for r in collection.runs]
    kept = [a if "taco" in a.name else r for a, r in zip(absent, collection.runs, strict=True)]
    table = results_table(dataclasses.replace(collection, runs=kept), "final_accuracy", "higher")
    assert isinstance(table, ReportTable)
    row = next(row for row in table.rows if row[0] == "taco")
    assert list(row) == ["taco", "–", "60.00 ± 0.50", "–"]
