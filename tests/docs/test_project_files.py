"""The files that tell people and tools about the project agree with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def document(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_names_the_projects_authors_and_licence(project: Any) -> None:
    citation = document("CITATION.cff")
    assert citation["authors"] == project["authors"] and citation["license"] == project["license"]
    assert citation.get("version", project["version"]) == project["version"]


def test_the_workflow_runs_what_a_change_must_pass(project: Any) -> None:
    job = document(".github/workflows/ci.yml")["jobs"]["check"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert project["requires-python"] == ">=3.11"


def test_ci_runs_every_check_and_the_readmes_test_command() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make")] == [
        f"make {name}" for name in ("setup", "lint", "types", "docs", "test")
    ]
    assert "make test " in (ROOT / "README.md").read_text()


def test_hooks_use_what_set_up_installs() -> None:
    (repo,) = document(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repo["hooks"])


@pytest.mark.parametrize("target", ["test", "test-fast", "coverage", "lint", "types", "docs"])
def test_make_knows_its_targets(target: str) -> None:
    command = ["make", "--dry-run", "--always-make", f"PYTHON={sys.executable}", target]
    outer = ("COVERAGE", "MAKEFLAGS", "MAKELEVEL")
    plain = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("--cov" in done.stdout) == (target == "coverage")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_lead_somewhere(page: Path) -> None:
    """GitHub shows the pages too; the site's build checks only those in docs/."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    relative = [target for target in targets if target and "://" not in target]
    assert not [target for target in relative if not (page.parent / target).exists()]


def test_every_extra_is_pinned(project: Any) -> None:
    pins = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = {line.split("==")[0] for line in pins if "==" in line}
    wanted = [name for names in project["optional-dependencies"].values() for name in names]
    names = {re.split(r"[\[<>=]", name)[0].lower() for name in [*wanted, *project["dependencies"]]}
    assert names - {project["name"]} <= pinned


def test_the_tests_that_the_security_page_names_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", text))
    paths = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")}
    assert named and all(any(path.endswith(name) for path in paths) for name in named)
