"""Every line is in its room: a module imports only from the layers below its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsuite import registry

ROOT = Path(__file__).parents[1]
PACKAGES = ("fedsuite", "strategies", "clients", "tasks")
LAYERS = (
    ("fedsuite.cli",),
    ("fedsuite.api",),
    ("fedsuite.suites", "fedsuite.report"),
    ("fedsuite.engines", "fedsuite.deploy"),
    ("fedsuite.server_app", "fedsuite.client_app"),
    ("fedsuite.training",),
    ("fedsuite.nodes",),
    ("fedsuite.terminal", "fedsuite.inference"),
    ("fedsuite.records",),
    ("fedsuite.config",),
    ("fedsuite.shared_settings",),
    ("fedsuite.registry", "fedsuite.metrics"),
    ("strategies", "clients"),
    ("tasks",),
    ("fedsuite.flower",),
    ("fedsuite.core",),
)
DEPTH = {room: depth for depth, layer in enumerate(LAYERS) for room in layer}
ONLY_CORE = ("strategies", "clients", "tasks", "fedsuite.flower")
OFFERS_ALL = "fedsuite.api"  # what `import fedsuite` gives access to
FLOWERS_OWN = re.compile(
    r"flwr\.(supercore|superlink|supernode|simulation|common|cli|proto)(\..*)?"
)
IMPORTERS = ("import_module", "importlib.import_module", "__import__")


def room_of(module: str) -> str:
    """Return the room a module is in: a package at the top, a room of fedsuite, or its module."""
    top, _, rest = module.partition(".")
    return f"{top}.{rest.split('.')[0]}" if top == "fedsuite" and rest else top


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imported(tree: ast.AST) -> set[str]:
    """Return what a source imports, anywhere in it; relative imports with their dots.

    ``import a.b`` also makes ``a`` known.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            found |= {alias.name.split(".")[0] for alias in node.names if not alias.asname}
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            found |= {f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTERS:
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
            found |= {str(name.value) for name in given if isinstance(name, ast.Constant)}
    return found


def ours(names: set[str]) -> list[str]:
    """Return what is imported of the project itself; relative imports are."""
    return sorted(name for name in names if name.split(".")[0] in ("", *PACKAGES))


def private_parts(source: str) -> list[str]:
    """Return what a source imports of Flower that Flower does not publish."""
    return sorted(filter(FLOWERS_OWN.fullmatch, imported(ast.parse(source))))


def settings_named(module: str, tree: ast.Module) -> set[str]:
    """Return the settings of strategies that a client names as a type, which it may."""
    if room_of(module) != "clients":
        return set()
    guarded = [
        statement
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
    ]
    names = imported(ast.Module(guarded, []))
    return {n for n in names if n.startswith("strategies.") and n.endswith("Params")}


def misplaced(module: str, source: str) -> list[str]:
    """Say which imports of a module lead out of the layers below it."""
    room, complaints, tree = room_of(module), [], ast.parse(source)
    outside = [node for node in tree.body if not isinstance(node, ast.If)]
    allowed = settings_named(module, tree) - imported(ast.Module(outside, []))
    for name in ours(imported(tree) - allowed):
        if name.startswith("."):
            complaints.append(f"{module} imports {name}: write out the module's name")
            continue
        other = room_of(name)
        other = other if other in DEPTH else OFFERS_ALL
        if other == room:
            continue
        below = DEPTH[other] > DEPTH[room]
        if not below or (
            room in ONLY_CORE and other.startswith("fedsuite.") and other != "fedsuite.core"
        ):
            complaints.append(f"{module} imports {name}: {room} lies beside or below {other}")
    return complaints


@pytest.mark.parametrize(("module", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_a_module_imports_only_from_the_layers_below_its_own(module: str, path: Path) -> None:
    if module != "fedsuite":
        assert not misplaced(module, path.read_text())


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("strategies.new", "from clients.base import Client"),
        ("clients.new", "from strategies.taco import TacoParams"),
        ("clients.new", "if TYPE_CHECKING:\n    from strategies.taco import Taco"),
        ("clients.new", "if not TYPE_CHECKING:\n    from strategies.taco import TacoParams"),
        ("clients.new", "if TYPE_CHECKING:\n    pass\nelse:\n    import strategies.taco"),
        ("strategies.new", "if TYPE_CHECKING:\n    from clients.taco import TacoClient"),
        ("clients.new", "from fedsuite.flower.commands import executable"),
        ("tasks.new", "from fedsuite import registry"),
        ("fedsuite.core.new", "import tasks.models"),
        ("fedsuite.records.new", "def late():\n    from fedsuite.terminal import progress"),
        ("fedsuite.suites.new", "from fedsuite.report.compare import compare"),
        ("fedsuite.flower.new", "from fedsuite.config import RunConfig"),
        ("strategies.new", "import fedsuite"),
        ("clients.new", "import fedsuite as suite"),
        ("tasks.new", "import fedsuite.core.vector"),
        ("fedsuite.core.new", "import fedsuite\nfedsuite.run('fedavg')"),
        ("fedsuite.core.new", "from fedsuite import run"),
        ("fedsuite.records.new", "from fedsuite import __version__"),
        ("fedsuite.core.new", "from ..registry import find"),
        ("fedsuite.core.new", "from .. import registry"),
        ("fedsuite.core.new", "from .settings import UserError"),
        ("fedsuite.core.new", "import_module('fedsuite.config')"),
        ("tasks.new", "import importlib\nimportlib.import_module('fedsuite.config')"),
        ("strategies.new", "__import__('clients.base')"),
    ],
)
def test_a_line_in_the_wrong_room_is_found(module: str, line: str) -> None:
    assert misplaced(module, line)


@pytest.mark.parametrize(("module", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_what_flower_does_not_publish_is_imported_in_one_room(module: str, path: Path) -> None:
    if room_of(module) != "fedsuite.flower":
        assert not private_parts(path.read_text())


@pytest.mark.parametrize(
    "line",
    [
        "import flwr.supercore.run",
        "from flwr import common",
        "from flwr.common import Parameters",
        "from flwr.proto.fleet_pb2 import PullMessagesRequest",
        "def late():\n    from flwr.simulation.ray_transport import ray_actor",
        "import_module('flwr.superlink.cli.flower_superlink')",
        "importlib.import_module(name='flwr.supernode.start_client_internal')",
    ],
)
def test_an_import_of_a_private_part_of_flower_is_found(line: str) -> None:
    assert private_parts(line)
    assert not private_parts("from flwr.app import Message\nimport flwr.clientapp.mod")


def test_a_client_may_name_the_settings_of_its_strategy_as_a_type() -> None:
    line = "from strategies.taco import TacoParams"
    guarded = f"if TYPE_CHECKING:\n    {line}"
    assert not misplaced("clients.new", guarded)
    assert misplaced("tasks.new", guarded) and misplaced("clients.new", f"{guarded}\n{line}")


@pytest.mark.parametrize(
    ("package", "absent"),
    [("strategies", "torch"), ("strategies", "clients"), ("clients", "strategies")],
)
def test_one_side_is_imported_without_what_it_must_not_need(package: str, absent: str) -> None:
    names = [name for name, _ in modules() if name.split(".")[0] == package]
    code = f"import sys, {', '.join(names)}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_every_room_has_a_layer_and_fedsuite_holds_few_modules_beside_its_rooms() -> None:
    rooms = {room_of(module) for module, _ in modules()} - {"fedsuite"}
    assert rooms == set(DEPTH)
    assert len(list((ROOT / "fedsuite").glob("*.py"))) <= 10


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    folders = (*PACKAGES, "benchmarks", "faults", "mutants", "fuzz", "tests")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lengths = {str(p.relative_to(ROOT)): p.read_text().count("\n") for p in paths}
    assert not {name: count for name, count in lengths.items() if count > 400}


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_both_sides_of_an_algorithm_agree_on_the_wire(name: str) -> None:
    algorithm = registry.find(name)
    assert algorithm.strategy.expects == algorithm.client.sends
    assert algorithm.strategy.shares_model == ("model" in algorithm.client.receives)
    assert algorithm.strategy.shares_model == ("model" in algorithm.client.scores_with)
    assert set(algorithm.client.scores_with) <= set(algorithm.client.receives)
    assert registry.ALGORITHMS[name].summary
    assert algorithm.strategy.__module__ != "strategies.base"
