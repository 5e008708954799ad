"""Follow docs/adding-an-algorithm.md to the letter, in a folder outside the package."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import clients
import strategies
from fedsuite import registry
from fedsuite.core.files import read_document, read_lines

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-algorithm.md"
BLOCKS = dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL))


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the page's files and add its registry line."""
    for title in ("strategies/fedclip.py", "clients/fedclip.py", "my_fedclip.py"):
        file = tmp_path / title
        file.parent.mkdir(exist_ok=True)
        file.write_text(BLOCKS[title])
    monkeypatch.setattr(
        strategies, "__path__", [*strategies.__path__, str(tmp_path / "strategies")]
    )
    monkeypatch.setattr(clients, "__path__", [*clients.__path__, str(tmp_path / "clients")])
    monkeypatch.syspath_prepend(str(tmp_path))
    line = eval("{" + BLOCKS["registry line"] + "}", {"Entry": registry.Entry})
    for name, entry in line.items():
        monkeypatch.setitem(registry.ALGORITHMS, name, entry)
    yield tmp_path
    for module in ("strategies.fedclip", "clients.fedclip", "my_fedclip"):
        sys.modules.pop(module, None)


def test_the_pages_own_test_passes(followed: Path, experiment: Callable[..., Path]) -> None:
    page_test = ModuleType("page_test")
    exec(BLOCKS["tests/test_fedclip.py"], page_test.__dict__)
    page_test.test_clip_by_hand()
    page_test.test_a_far_limit_is_fedavg_and_a_near_one_is_not(experiment)


def test_its_numbers_are_in_the_record(followed: Path, experiment: Callable[..., Path]) -> None:
    folder = experiment("fedclip", **{"fedclip.limit": 0.05})
    lengths = [row["length"] for row in read_lines(folder / "clients.jsonl")]
    assert all(length <= 0.0501 for length in lengths)
    assert read_lines(folder / "history.jsonl")[1]["longest"] == pytest.approx(max(lengths[:4]))


def test_it_runs_from_outside_with_settings_of_its_own(
    followed: Path, experiment: Callable[..., Path]
) -> None:
    inside = experiment("fedclip", **{"fedclip.limit": 0.01})
    outside = experiment("my_fedclip:ALGORITHM", **{"my-fedclip.limit": 0.01})
    models = [(f / "model.safetensors").read_bytes() for f in (inside, outside)]
    assert models[0] == models[1]
    assert read_document(outside / "config.json")["algo-settings"] == '{"limit": 0.01}'
