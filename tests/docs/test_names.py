"""Paths, modules and names that the documentation mentions exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import click
import pytest

from fedsuite.api.start import merge_settings
from fedsuite.cli.main import command
from fedsuite.cli.run import read_values, unlisted
from fedsuite.config import parse
from fedsuite.core.value_lists import split_values
from fedsuite.registry import ALGORITHMS
from fedsuite.suites.sweep import make_sweep

ROOT = Path(__file__).parents[2]
PACKAGES = ("fedsuite", "strategies", "clients", "tasks")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs").glob("*/*.md"),
]
# A path may be given from the root, or shortened to its room or to its place among the tests.
PLACES = [ROOT / place for place in ("", "fedsuite", "tests", "tests/fedsuite")]
FOLDERS = {path.name for place in PLACES for path in place.iterdir() if path.is_dir()} - {"runs"}
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+)?")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.(?!jsonl)\w+)+")
NAME = re.compile(r"(\w+(?:\.\w+)*)(?:\(.*\))?")
PAIR = re.compile(rf"`{NAME.pattern}`\s+(?:in\s+|\()`([\w./-]+\.py)`")
SHELL = re.compile(r"^ *```sh.*?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *fedsuite ((?:deploy )?[a-z]+)\b", re.MULTILINE)


def quoted(page: Path) -> list[str]:
    """Return what stands in backticks, outside blocks of code."""
    return INLINE.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))


def missing_paths(texts: list[str]) -> list[str]:
    """Return the texts that look like paths of this repository and are none."""
    paths = [text for text in texts if PATH.fullmatch(text) and text.split("/")[0] in FOLDERS]
    return [path for path in paths if not any((place / path).exists() for place in PLACES)]


def find(name: str) -> object:
    """Return what a dotted name stands for: a module, or an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if _is_module(module):
            found: object = importlib.import_module(module)
            for part in parts[count:]:
                found = getattr(found, part)
            return found
    raise ModuleNotFoundError(name)


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def per_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[str(p.relative_to(ROOT)) for p in pages])


@per_page(PAGES)
def test_paths_exist(page: Path) -> None:
    assert not missing_paths(quoted(page))


@per_page(PAGES)
def test_experiments_exist(page: Path) -> None:
    named = re.findall(r"sim_configs/[a-z0-9_/]+\.toml", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (ROOT / name).exists()]


@per_page(PAGES)
def test_dotted_names_exist(page: Path) -> None:
    for text in quoted(page):
        if DOTTED.fullmatch(text):
            find(text)


@per_page([page for page in PAGES if "reference" not in page.parts])
def test_commands_exist(page: Path) -> None:
    group = command()
    deploy = group.commands["deploy"]
    assert isinstance(deploy, click.Group)
    known = {*group.commands, *(f"deploy {name}" for name in deploy.commands)}
    code = [*quoted(page), *BLOCK.findall(page.read_text(encoding="utf-8"))]
    used = {name for text in code for name in COMMAND.findall(text)}
    assert used <= known


def run_commands(page: Path) -> list[list[str]]:
    """Return the words after ``fedsuite run`` of every such command of a page.

    Those between backticks of a page on adding something name what is added there.
    """
    blocks = "".join(SHELL.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    adding = page.name.startswith("adding-")
    texts = [*blocks.splitlines(), *([] if adding else quoted(page))]
    commands = [text.strip() for text in texts if text.strip().startswith("fedsuite run ")]
    return [words[2:] for words in (shlex.split(c, comments=True) for c in commands)]


@per_page([page for page in PAGES if run_commands(page)])
def test_settings_in_commands_are_accepted(page: Path) -> None:
    for algo, *words in run_commands(page):
        if algo == "...":
            continue
        pairs = [word for word in words if "=" in word and not word.startswith("-")]
        files = [str(ROOT / file) for flag, file in pairwise(words) if flag == "-f"]
        values = read_values(pairs) | {"algo": unlisted(split_values("algo", algo))}
        swept = {key: value for key, value in values.items() if isinstance(value, list)}
        fixed = {key: value for key, value in values.items() if key not in swept}
        if swept:
            make_sweep(swept, fixed, [key for key in values if key != "algo"], "", words)
        else:
            parse(merge_settings(files, values), idle="refuse")


@per_page([ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"])
def test_names_occur_in_the_source(page: Path) -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    files = " ".join(path.stem for path in sources)
    words = set(re.findall(r"\w+", files + "".join(path.read_text() for path in sources)))
    words |= {path.name for path in ROOT.iterdir()} | {"CHANGELOG", "md", "slow", "docker"}
    for text in quoted(page):
        if found := NAME.fullmatch(text):
            assert set(found[1].split(".")) <= words, text


def misattributed(text: str) -> list[str]:
    """Return the "`X` in `path`" of a text whose file does not define X, a class its member."""
    wrong = []
    for name, path in PAIR.findall(text):
        files = [place / path for place in PLACES if (place / path).is_file()]
        trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
        if not any(name in defined(tree.body) for tree in trees):
            wrong.append(f"{name} in {path}")
    return wrong


def defined(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the dotted names of the functions, classes, members and variables in a source."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            names |= defined(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
    return names


@per_page(PAGES)
def test_what_is_said_to_be_in_a_file_is_defined_there(page: Path) -> None:
    assert not misattributed(BLOCK.sub("", page.read_text(encoding="utf-8")))


OF_FEDDUAL = [
    *("README.md", "docs/algorithms/feddual.md", "docs/fidelity.md"),
    *("docs/evidence/baselines.md", "docs/evidence/suites.md"),
]


@pytest.mark.parametrize("page", OF_FEDDUAL)
def test_feddual_is_labelled_as_our_reading(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert "our reading" in text
    assert "our reading" in ALGORITHMS["feddual"].summary


def test_contributors_read_of_every_module() -> None:
    """A row of the table of rooms names exactly the modules of its room."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`|beside the rooms) \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    named: dict[str, set[str]] = {}
    for room, modules in rows:
        named.setdefault(room.strip("`"), set()).update(re.findall(r"`(\w+)`", modules))
    package = ROOT / "fedsuite"
    rooms = {path.parent.name: path.parent for path in package.glob("*/__init__.py")}
    actual = {name: modules_in(folder) for name, folder in rooms.items()}
    assert named == actual | {"beside the rooms": modules_in(package)}


def modules_in(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


REFERENCE = {
    "fedsuite": ["settings", "training"],
    "fedsuite.api": ["api"],
    "fedsuite.core": ["core"],
    "fedsuite.engines": ["engines"],
    "fedsuite.flower": ["engines"],
    "fedsuite.inference": ["inference"],
    "fedsuite.nodes": ["nodes"],
    "fedsuite.records": ["records"],
    "fedsuite.training": ["training"],
    "strategies": ["strategies"],
    "clients": ["clients"],
    "tasks": ["tasks"],
}


@pytest.mark.parametrize("room", REFERENCE)
def test_the_reference_has_every_module_of_a_room(room: str) -> None:
    """Those of a single algorithm have a page of their own."""
    folder = ROOT / "docs" / "reference"
    text = "".join((folder / f"{page}.md").read_text() for page in REFERENCE[room])
    named = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    found = {f"{room}.{name}" for name in modules_in(ROOT / room.replace(".", "/"))}
    of_one = {
        side.partition(":")[0] for a in ALGORITHMS.values() for side in (a.strategy, a.client)
    }
    assert found - of_one == {name for name in named if name.rpartition(".")[0] == room} - of_one
    assert len(named) == len(set(named))


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    path = ROOT / "tests" / "test_architecture.py"
    spec = importlib.util.spec_from_file_location("architecture_rules", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_the_layers_that_are_enforced(rules: ModuleType) -> None:
    picture = (ROOT / "docs" / "images" / "layers.svg").read_text(encoding="utf-8")
    rows: dict[str, list[str]] = {}
    for height, name in re.findall(r'y="(\d+)" class="name">(\w+)<', picture):
        rows.setdefault(height, []).append(name)
    drawn = [sorted(rows[height]) for height in sorted(rows, key=int)]
    assert drawn == [
        sorted(room.removeprefix("fedsuite.") for room in layer) for layer in rules.LAYERS
    ]
    words = re.search(r"!\[The layers: (.*)\.\]", (ROOT / "docs" / "architecture.md").read_text())
    assert words is not None
    told = [sorted(re.split(r", | and ", layer)) for layer in words[1].split("; ")]
    assert told == drawn


def test_what_does_not_exist_is_found() -> None:
    texts = ["engines/table.py", "fedsuite/engines/table.py", "engines/tables.py", "certs/ca.key"]
    assert missing_paths(texts) == ["engines/tables.py"]
    said = "`{}` in `{}`, `find(name)`\n(`registry.py`)"
    assert not misattributed(said.format("Worker.save", "nodes/worker.py"))
    assert misattributed(said.format("Worker.save", "client_app.py"))
    assert misattributed("`finds` in `registry.py`")
    assert find("fedsuite.core.settings.setting")
    with pytest.raises(AttributeError):
        find("fedsuite.core.settings.settings")
    with pytest.raises(ModuleNotFoundError):
        find("strategy.base")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_place_is_left_to_fill_in(page: Path) -> None:
    assert not re.findall(r"@@\w+@@", page.read_text(encoding="utf-8"))
