"""The table and the picture of who holds what."""

from __future__ import annotations

import itertools
import string
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from rich.console import Console

from fedsuite.report.label_distribution import label_figure, label_table, save_label_png


def lines(counts: ArrayLike, names: list[str], width: int) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(label_table(np.asarray(counts), names, width))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_rows_by_hand() -> None:
    counts = [[100, 25, 26, 0], [0, 1_000, 0, 750]]
    assert lines(counts, ["ant", "bee", "cow", "dog"], 80) == [
        "client  samples  classes  ant bee cow dog",
        "     0      151        3  ███ ░░░ ▒▒▒ ···",
        "     1    1,750        2  ··· ███ ··· ▓▓▓",
        "   all    1,901        4  ░░░ ███ ░░░ ▓▓▓",
        "· none  ░ to 25 %  ▒ to 50 %  ▓ to 75 %  █ to 100 % of the row's largest",
    ]


def test_forty_clients_then_how_many_more() -> None:
    text = lines(np.ones((100, 10), int), list("0123456789"), 80)
    assert sum(line.split()[0].isdigit() for line in text if line) == 40
    assert any("... and 60 more" in line for line in text)
    assert text[-2].split()[:2] == ["all", "1,000"]


def test_62_classes_keep_a_cell_each_in_80_columns() -> None:
    names = list(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    text = lines(np.eye(62, dtype=int)[:3], names, 80)
    assert text[0].endswith("".join(names))
    assert text[3].endswith("··█" + "·" * 59)


def test_200_classes_share_cells() -> None:
    counts = np.zeros((1, 200), int)
    counts[0, 199] = 5
    text = lines(counts, [f"class {label}" for label in range(200)], 80)
    assert "0         40" in text[0]
    assert text[1].endswith("·" * 49 + "█")
    assert "4 classes to a cell" in text


@pytest.mark.parametrize("width", [25, 40, 80, 120, 200])
@pytest.mark.parametrize("classes", [1, 2, 10, 62, 200])
def test_no_line_is_wider_than_asked(width: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (5, classes))
    text = lines(counts, [f"name{label}" for label in range(classes)], width)
    assert max(map(len, text)) <= width
    assert [line.split()[0] for line in text[1:7]] == ["0", "1", "2", "3", "4", "all"]


def test_names_that_cannot_be_seen_or_look_like_markup() -> None:
    text = lines([[1, 2, 3, 4]], [" ", "\n", "[", "[bold]"], 80)
    assert text[0].endswith("␣      \\n     [      [bold]")


def test_clients_without_data_are_dots() -> None:
    assert lines([[0, 0]], ["a", "b"], 80)[1].endswith("0        0  ··· ···")


@pytest.mark.parametrize(("clients", "classes"), [(20, 10), (100, 62), (1, 1), (3, 2), (130, 10)])
def test_picture_is_written(tmp_path: Path, clients: int, classes: int) -> None:
    from PIL import Image

    counts = np.random.default_rng(0).integers(0, 50, (clients, classes))
    names = ["$", "a_b"] if classes == 2 else [str(label) for label in range(classes)]
    path = tmp_path / "new" / "labels.png"
    save_label_png(counts, names, path, "a title")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert max(image.size) <= 3000
        assert np.asarray(image.convert("L")).std() > 5


@pytest.mark.parametrize(
    ("clients", "classes", "width"), [(20, 10, 3.4), (3, 2, 3.4), (120, 62, 7.0), (5, 200, 7.0)]
)
def test_picture_is_as_wide_as_a_column_or_a_page(clients: int, classes: int, width: float) -> None:
    names = [f"class {label}" for label in range(classes)]
    figure = label_figure(np.ones((clients, classes), int), names, "a title " * 9)
    figure.canvas.draw()
    assert figure.get_size_inches()[0] == pytest.approx(width)
    assert figure.get_size_inches()[1] < 10
    assert figure.axes[0].get_position().width * width > 1.2
    labels = [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]
    assert all(left.x1 <= right.x0 + 1 for left, right in itertools.pairwise(labels))


def test_picture_without_data_is_written(tmp_path: Path) -> None:
    save_label_png(np.zeros((2, 3), int), ["a", "b", "c"], tmp_path / "empty.png", "nothing")
    assert (tmp_path / "empty.png").stat().st_size > 0
