"""Tables as LaTeX: whatever stands in them is printed, and a TeX engine takes them."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.records.collection import open_collection
from fedsuite.report import latex
from fedsuite.report.build import RESULTS, latex_tables, make_report
from fedsuite.report.document import Bold, Document, ReportTable, Section
from fedsuite.report.results import results_table, results_tables, rounds_csv

AWKWARD = [
    "a_b & 50 % {x} \\ ~ ^ # $ <>|\"'`",
    "[begins as an option",
    "*so does this",
    "--scale",
    "é ï Å č ł 中 κ ± ≈ … “quoted” ⁺ †",
    "-1.5",
    "two\nlines",
]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b & 50 %", r"a\_b \& 50 \%"),
        ("{$#}", r"\{$\mathdollar$\#\}"),
        ("\\~^", r"\textbackslash{}\textasciitilde{}\textasciicircum{}"),
        ("1.0 ± 0.5 ≈", r"1.0 $\pm$ 0.5 $\approx$"),
        ("--scale", "-{}-scale"),
        ("– “a”", "-- ``a''"),
        ("é ï", r"\'{e} \"{\i}"),
        ("κ=0.7", r"$\kappa$=0.7"),
        ("中", "U+4E2D"),
        ("[a]*", "{[}a{]}{*}"),
        ("two\nlines", "two lines"),
    ],
)
def test_texts_are_escaped(text: str, written: str) -> None:
    assert latex.escape(text) == written


def test_a_table_by_hand() -> None:
    rows = [["fed_avg", Bold("78.45 ± 1.63"), "-1.50"], ["taco", "–", "+3.00"]]
    text = latex.table(ReportTable(["method", "A & B", "d"], rows, "accuracy (%)."), "results")
    assert r"\begin{tabular}{lrr}" in text and r"\caption{Accuracy (\%).}" in text
    assert r"method & A \& B & d \\" in text and r"\label{tab:results}" in text
    assert r"fed\_avg & \textbf{78.45 $\pm$ 1.63} & $-$1.50 \\" in text
    assert r"taco & -- & +3.00 \\" in text


def test_marks_against_the_reference_by_hand(tmp_path: Path) -> None:
    """Over three seeds the half width is 4.303 s / sqrt(3).

    TACO is 4, 5 and 6 points above FedAvg: 5 ± 2.48. FedProx is -1, 0 and 4 off: 1 ± 6.57.
    Local has one seed, so it is not compared; FedBaC is 9, 10 and 11 below.
    """
    last = {
        "fedavg": (50, 51, 52),
        "taco": (54, 56, 58),
        "fedprox": (49, 51, 56),
        "fedbac": (41, 41, 41),
    }
    for algo, ends in last.items():
        for seed, end in enumerate(ends):
            write_run(tmp_path, f"{algo}-s{seed}", algo, [0.1, end / 100], seed=seed)
    write_run(tmp_path, "scaffold-s0", "scaffold", [0.1, 0.9])
    collection = open_collection(str(tmp_path))
    table = results_table(collection, "final_accuracy", "higher", "fedavg")
    assert isinstance(table, ReportTable)
    assert {row[0]: row[1] for row in table.rows} == {
        "fedavg": "51.00 ± 1.00",
        "fedbac": "41.00 ± 0.00⁻",
        "fedprox": "52.00 ± 3.61 ≈",
        "scaffold": "90.00 (1 of 3)",
        "taco": "56.00 ± 2.00⁺ ≈",
    }
    assert "⁺/⁻: better or worse than fedavg" in table.caption
    lower = results_table(collection, "final_accuracy", "lower", "fedavg")
    assert isinstance(lower, ReportTable)
    assert "56.00 ± 2.00⁻" in [row[1] for row in lower.rows]
    (plain,) = results_tables(collection)
    assert isinstance(plain, ReportTable) and "⁺" not in str(plain)


def test_a_report_has_its_tables_without_the_papers_numbers(report: Path) -> None:
    text = (report / "tables" / "results.tex").read_text()
    assert r"fedadw & \textbf{78.45 $\pm$ 1.63$^{+}$} \\" in text and "Paper" not in text
    assert r"taco & 63.00 $\pm$ 1.41" in text and "60.00" not in text
    names = re.findall(r"\\input{tables/(.+?)}", (report / "tables.tex").read_text())
    assert {path.stem for path in (report / "tables").iterdir()} == set(names)
    assert names[0] == "results" and "communication" in names and "runs" not in names


def test_the_papers_numbers_are_an_option(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = [Section(RESULTS, [])]
    tables = latex_tables(open_collection(str(suite)), Document("t", "", sections), "fedavg")
    text = latex.table(tables["results"], "results")
    assert re.search(r"taco & 63.00 \$\\pm\$ 1.41.* & 60.00 \$\\pm\$ 0.50 & \+3.00 \\\\", text)
    assert "Paper: Paper, Table I." in text
    asked: list[object] = []

    def note(name: str, out: Path, results_dir: str, **options: object) -> Path:
        asked.append(options)
        return out

    monkeypatch.setattr("fedsuite.report.build.make_report", note)
    assert main(["report", str(suite), "--paper-numbers", "--against", "taco"]) == 0
    assert asked == [{"paper_numbers": True, "against": "taco"}]


def test_the_reference_must_be_there(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="invalid value 'tako' for --against"):
        make_report(str(suite), tmp_path, against="tako")


def test_every_round_of_every_run_is_a_line(suite: Path) -> None:
    """Twelve runs of rounds 0 to 2; the second class has half of the first one's accuracy."""
    rows = list(csv.DictReader(rounds_csv(open_collection(str(suite))).splitlines()))
    assert len(rows) == 36
    (row,) = [r for r in rows if r["run"] == "taco-s2" and r["round"] == "2"]
    assert (row["algo"], row["seed"], row["accuracy"]) == ("taco", "2", "0.64")
    assert row["class_accuracy.1"] == "0.32" and row["upload_bytes"] == "4000"
    (first,) = [r for r in rows if r["run"] == "taco-s2" and r["round"] == "0"]
    assert first["upload_bytes"] == ""


@pytest.mark.slow
def test_a_tex_engine_takes_them(report: Path, tmp_path: Path) -> None:
    engine = next(filter(None, map(shutil.which, ("pdflatex", "tectonic", "lualatex"))), None)
    if engine is None:
        pytest.skip("no TeX engine (pdflatex, tectonic, lualatex) on this machine")
    shutil.copytree(report / "tables", tmp_path / "tables")
    awkward = ReportTable(AWKWARD, [AWKWARD, AWKWARD], " ".join(AWKWARD), AWKWARD[0])
    (tmp_path / "tables" / "awkward.tex").write_text(latex.table(awkward, "awkward"))
    names = re.findall(r"\\input{tables/(.+?)}", (report / "tables.tex").read_text())
    long = ReportTable(["method", "accuracy"], [["taco", Bold("1.00 ± 0.20")]] * 90, "Long.")
    (tmp_path / "tables" / "long.tex").write_text(latex.table(long, "long"))
    (tmp_path / "tables.tex").write_text(latex.document([*names, "awkward", "long"], "tables"))
    strict = [] if "tectonic" in engine else ["-halt-on-error", "-interaction=nonstopmode"]
    done = subprocess.run(
        [engine, *strict, "tables.tex"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Overfull" not in done.stdout and "too large" not in done.stdout
    assert (tmp_path / "tables.pdf").read_bytes().startswith(b"%PDF")


def test_a_new_report_takes_the_place_of_the_old_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "tables").mkdir(parents=True)
    for name in ("old", "mine"):
        (out / "tables" / f"{name}.tex").write_text("")
    (out / "tables.tex").write_text(r"\input{tables/old}")
    (tmp_path / "runs" / "hollow").mkdir(parents=True)
    make_report(str(tmp_path / "runs"), out)
    assert [path.name for path in (out / "tables").iterdir()] == ["mine.tex"]
    assert "There are no tables." in (out / "tables.tex").read_text()
