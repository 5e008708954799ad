"""An algorithm's settings are known without importing it, and are the real ones."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsuite import registry
from fedsuite.core import params_from_source
from fedsuite.core.params_from_source import Unreadable, read_params

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from fedsuite.core.settings import setting
LARGEST = 3
"""


def described(kind: type[Any]) -> list[tuple[Any, ...]]:
    fields = dataclasses.fields(kind)
    return [(kind.__name__, f.name, f.type, f.default, dict(f.metadata)) for f in fields]


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_settings_read_from_source_are_those_of_the_strategy(name: str) -> None:
    light, real = registry.params(name), registry.find(name).strategy.Params
    assert light is not real
    assert described(light) == described(real)
    assert dataclasses.asdict(light()) == dataclasses.asdict(real())


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Write a module of a package; return its name."""
    (tmp_path / "plan_b").mkdir()
    (tmp_path / "plan_b" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(source: str) -> str:
        made.append(f"plan_b.part{len(made)}")
        (tmp_path / "plan_b" / f"part{len(made) - 1}.py").write_text(HEAD + source)
        return made[-1]

    yield write
    for name in ("plan_b", *made):
        sys.modules.pop(name, None)
    for function in (read_params, params_from_source._class, params_from_source._parse):
        function.cache_clear()


def test_the_nearest_base_by_pythons_order_decides(module: Callable[[str], str]) -> None:
    """D(B, C) over A: B has no Params of its own, so C's count before A's."""
    base = module(
        """
@dataclass(frozen=True)
class P:
    one: int = setting(1, "one")
@dataclass(frozen=True)
class Q:
    two: float = setting(2.0, "two", low=0)
class A:
    Params: type = P
class B(A):
    pass
class C(A):
    Params = Q
"""
    )
    name = module(f"from {base} import B, C\nclass D(B, C):\n    pass\n")
    light = read_params(f"{name}:D")
    assert [(f.name, f.default) for f in dataclasses.fields(light)] == [("two", 2.0)]
    assert base not in sys.modules and name not in sys.modules


@pytest.mark.parametrize(
    "params",
    [
        "@dataclass(frozen=True)\nclass P:\n    one: int = setting(LARGEST, 'one')\n",
        "@dataclass(frozen=True)\nclass P:\n    def __post_init__(self):\n        LARGEST\n",
        "P = make()\n",
    ],
)
def test_what_the_source_alone_cannot_tell_is_refused(
    module: Callable[[str], str], params: str
) -> None:
    name = module(params + "class S:\n    Params = P\n")
    with pytest.raises(Unreadable):
        read_params(f"{name}:S")


def test_then_the_strategy_is_imported(
    module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(
        "@dataclass(frozen=True)\nclass P:\n    one: int = setting(LARGEST, 'one')\n"
        "class S:\n    Params = P\n"
    )
    entry = registry.Entry(f"{name}:S", "clients.fedavg:FedAvgClient", "another")
    monkeypatch.setitem(registry.ALGORITHMS, "another", entry)
    assert registry.params("another")().one == 3
    assert name in sys.modules
