"""The notebook: it runs from its first cell to its last, and is kept as it ran."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from fedsuite.core.installation import ROOT

pytestmark = pytest.mark.slow
PATH = ROOT / "examples" / "quickstart.ipynb"


def outputs(notebook: Any) -> list[Any]:
    """Return what stands below the cells."""
    return [out for cell in notebook.cells for out in cell.get("outputs", [])]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Execute a copy in an empty folder."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(PATH, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return NotebookClient(notebook, timeout=300, resources=place).execute()


def test_a_run_shows_one_line_that_is_replaced_and_notes_that_stay(executed: Any) -> None:
    shown = [out for out in outputs(executed) if out.output_type == "display_data"]
    assert [out.data["text/plain"][:11] for out in shown] == ["round 10/10"]
    said = "".join(out.text for out in outputs(executed) if out.output_type == "stream")
    assert "expelled client 6, 7, 8, 9" in said and "round 4/10" not in said
    assert "\x1b" not in said and "\r" not in said


def test_it_is_kept_as_it_ran(executed: Any) -> None:
    kept = nbformat.read(PATH, as_version=4)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = [[out.output_type for out in outputs(notebook)] for notebook in (kept, executed)]
    assert kinds[0] == kinds[1] and "error" not in kinds[0]
