"""The pages that say how to add something, followed to the letter in one copy of the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from following import ROOT, blocks, changed, copy_tree, follow, run_tests

PAGES = ("dataset", "partition", "model", "metric", "figure")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def followed(tree: Path) -> dict[str, list[str]]:
    """Follow all pages, one after the other; return each one's tests."""
    return {name: follow(ROOT / "docs" / f"adding-a-{name}.md", tree) for name in PAGES}


@pytest.fixture(scope="module")
def outcome(tree: Path, followed: dict[str, list[str]]) -> tuple[dict[str, bool], str]:
    return run_tests([test for tests in followed.values() for test in tests], tree)


@pytest.mark.parametrize("name", PAGES)
def test_a_pages_own_tests_pass(
    name: str, followed: dict[str, list[str]], outcome: tuple[dict[str, bool], str]
) -> None:
    passed, said = outcome
    assert followed[name], "the page has no test"
    assert all(passed.get(test) for test in followed[name]), said


def test_what_the_pages_add_is_linted_and_formatted(
    tree: Path, followed: dict[str, list[str]]
) -> None:
    files = {b.title for name in followed for b in blocks(ROOT / "docs" / f"adding-a-{name}.md")}
    ruff = str(Path(sys.executable).parent / "ruff")
    for words in (["check"], ["format", "--diff"]):
        command = [ruff, *words, "--no-cache", *sorted(files)]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_change_needs_a_place_that_occurs_once() -> None:
    assert changed("a\nb\n", " a\n+x\n") == "a\nx\nb\n"
    assert changed("a\nb\n", "-a\n+x\n@@\n b\n+y\n") == "x\nb\ny\n"
    for diff in (" c\n+x\n", " a\n+x\n"):
        with pytest.raises(ValueError, match="occurs"):
            changed("a\na\n", diff)
