"""The documentation's site: built strictly, complete, without anything from the network."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build as ``make docs`` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_is_there(site: Path, hooks: ModuleType) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    pages |= {Path(page) for page in hooks.ROOT_PAGES.values()}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert pages <= built


def test_nothing_comes_from_the_network(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        assert not loaded.findall(page.read_text(encoding="utf-8")), page


def test_the_reference_shows_signatures_and_docstrings(site: Path) -> None:
    page = (site / "reference" / "strategies.html").read_text(encoding="utf-8")
    assert 'id="strategies.base.BaseStrategy.aggregate"' in page
    assert "Return the next global vector" in page


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("[gone](no-such-page.md)", "no-such-page.md"),
        ("[gone](security.md#no-such-heading)", "no-such-heading"),
        ("[gone](../strategies/no_such_file.py)", "no_such_file.py"),
    ],
)
def test_a_broken_link_fails_the_build(link: str, complaint: str, tmp_path: Path) -> None:
    """A site of two pages and no API reference is enough, and quick."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^(?:nav|plugins):\n(?: .*\n|\n)*", "", settings, flags=re.M)
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    for name in ("hooks.py", "security.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    security = (tmp_path / "docs" / "security.md").read_text(encoding="utf-8")
    plain = re.sub(r"\]\([^)]*\.md\)", "](security.md)", security)
    (tmp_path / "docs" / "security.md").write_text(plain, encoding="utf-8")
    index = tmp_path / "docs" / "index.md"
    index.write_text("# Start\n\n[well](security.md)\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    index.write_text(f"# Start\n\n{link}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and complaint in done.stdout + done.stderr


def test_links_to_sources_lead_to_the_reference_or_are_text(hooks: ModuleType) -> None:
    def resolve(text: str, page: str) -> str:
        modules = {"strategies.base": "reference/strategies.md"}
        result: str = hooks.resolve_links(text, page, ROOT / "docs", modules)
        return result

    base = "[`base`](../strategies/base.py)"
    assert resolve(base, "x.md") == "[`base`](reference/strategies.md#strategies.base)"
    deeper = base.replace("..", "../..")
    assert resolve(deeper, "evidence/x.md").endswith("(../reference/strategies.md#strategies.base)")
    assert resolve("[make](../Makefile)", "x.md") == "make"
    assert resolve("[read](../README.md#use-it)", "x.md") == "[read](getting-started.md#use-it)"
    assert resolve("[us](../../SECURITY.md)", "evidence/x.md") == "[us](../security-policy.md)"
    assert resolve("[page](docs/security.md#x)", "getting-started.md") == "[page](security.md#x)"
    assert resolve("[all](docs/evidence/suites)", "getting-started.md") == "all"
    assert resolve(base.replace("../", ""), "contributing.md").endswith(
        "(reference/strategies.md#strategies.base)"
    )
    assert resolve("[all](suites)", "evidence/x.md") == "all"
    assert resolve("[page](security.md) ![](images/x.svg)", "x.md") == (
        "[page](security.md) ![](images/x.svg)"
    )
    assert resolve(f"```md\n{base}\n```\n", "x.md") == f"```md\n{base}\n```\n"


def test_the_reference_is_of_modules_that_exist(hooks: ModuleType) -> None:
    for module in hooks.documented(ROOT / "docs" / "reference"):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module
