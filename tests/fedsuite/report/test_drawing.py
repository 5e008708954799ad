"""Figures hold what is asked of them: names that fit, files that are their own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from fedsuite.report import drawing
from fedsuite.report.build import make_report
from fedsuite.report.method_styles import styles_for

LONG = [f"fedbac (regularizer=gradient, printed-sign=true, turn {n})" for n in range(8)]
SHORT = ["taco", "fedavg"]


def inches(figure: Any) -> tuple[float, float]:
    """Return the plot's own width and height, without names, labels and legend."""
    figure.canvas.draw()
    place = figure.axes[0].get_position()
    width, height = figure.get_size_inches()
    return place.width * width, place.height * height


def is_whole(figure: Any, text: Any) -> bool:
    inside, box = figure.bbox, text.get_window_extent()
    return bool(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= inside.x1 and box.y1 <= inside.y1)


@pytest.mark.parametrize("names", [SHORT, LONG], ids=["short names", "long names"])
def test_a_legend_takes_no_room_from_its_plot(names: list[str]) -> None:
    series: dict[str, drawing.Line] = {name: ([0, 1], [1.0, 2.0], None, None) for name in names}
    with drawing.style_context():
        figure = drawing.lines("t", "round", "personal accuracy (%)", series, styles_for(names))
        width, height = inches(figure)
    assert width > 2.1 and height > 1.35
    assert is_whole(figure, figure.axes[0].yaxis.label)
    assert is_whole(figure, figure.legends[0])


@pytest.mark.parametrize("names", [SHORT, LONG], ids=["short names", "long names"])
def test_rows_leave_room_for_their_plot(names: list[str]) -> None:
    with drawing.style_context():
        label = "accuracy on a client's own test samples (%)"
        boxes = drawing.boxes("t", label, {n: [1.0, 2.0] for n in names}, styles_for(names))
        bars = drawing.bars("t", "rounds", {n: (1.0, 0.5) for n in names}, styles_for(names))
        for figure in (boxes, bars):
            width, height = inches(figure)
            assert width > 1.5 and height > 0.17 * len(names)
            assert is_whole(figure, figure.axes[0].xaxis.label)


@pytest.mark.parametrize("title", ["W" * 90, "MMMM, WWWW " * 6, "a short one", "$a$ and $b_c"])
def test_a_title_is_whole(title: str) -> None:
    with drawing.style_context():
        figure, axes = drawing.new_figure(title, "x", "y")
        _, height = inches(figure)
    text = figure.get_suptitle()
    assert text.replace("\n", "").replace(" ", "") == title.replace(" ", "")
    assert is_whole(figure, figure._suptitle) and height > 1.3
    assert figure._suptitle.get_window_extent().y0 > axes.get_window_extent().y1


def test_a_pdf_has_its_fonts_and_no_date() -> None:
    """A column is 3.4 inches of 72 points; fonts are embedded as TrueType (/FontFile2)."""
    series: dict[str, drawing.Line] = {"taco": ([0, 1], [1.0, 2.0], None, None)}
    with drawing.style_context():
        first, again = (
            drawing.pdf(drawing.lines("t", "round", "accuracy", series, styles_for(series)))
            for _ in range(2)
        )
    assert first == again and b"CreationDate" not in first
    assert b"/FontFile2" in first and b"/Type3" not in first
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", first)
    assert box is not None and float(box[1]) == pytest.approx(3.4 * 72)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_settings_that_differ_in_a_sign_have_figures_of_their_own(tmp_path: Path) -> None:
    """TINY ends at 20 %, TINY* at 90 %; both names come to "tiny" in a file's name."""
    entries = []
    for column, last in (("TINY", 0.2), ("TINY*", 0.9)):
        name = f"run-{last}"
        write_run(tmp_path / "mine", name, "fedavg", [0.1, last])
        labels = {"algo": "fedavg", "dataset": column, "seed": 0}
        entries.append({"name": name, "labels": labels, "key": name})
    manifest = {"name": "mine", "rows": "algo", "columns": ["dataset"], "runs": entries}
    (tmp_path / "mine" / "suite.json").write_text(json.dumps(manifest))
    make_report(str(tmp_path / "mine"), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    names = re.findall(r"\(figures/(.+?)\.png\)", text)
    assert len(names) == len(set(names))
    drawn = dict(re.findall(r"!\[(TINY\*?): accuracy.+by round.+\(figures/(.+?)\.png\)", text))
    for column, name in drawn.items():
        assert f">{column}</text>" in (tmp_path / "out" / "figures" / f"{name}.svg").read_text()
    assert drawn.keys() == {"TINY", "TINY*"}


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_new_report_takes_the_place_of_the_old_one_alone(suite: Path, tmp_path: Path) -> None:
    make_report(str(suite), tmp_path)
    (tmp_path / "figures" / "mine.png").write_text("drawn by hand")
    shutil.copytree(suite / "fedavg-s1", tmp_path / "one" / "fedavg-s1")
    make_report(str(tmp_path / "one"), tmp_path)
    text = (tmp_path / "report.md").read_text()
    names = set(re.findall(r"\(figures/(.+?)\.png\)", text))
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == names | {"mine"}
