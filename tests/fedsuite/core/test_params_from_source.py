"""Which sources can be read without importing them, and which cannot."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedsuite.core import params_from_source
from fedsuite.core.params_from_source import Unreadable, read_params

FIELDS = (
    "from dataclasses import dataclass\nfrom fedsuite.core.settings import setting\n"
    "@dataclass(frozen=True)\nclass P:\n"
    '    """Settings."""\n    one: int = setting(1, "one")\n'
)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules of a package."""
    (tmp_path / "plan_c").mkdir()
    (tmp_path / "plan_c" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / "plan_c" / f"{name}.py").write_text(source)

    yield write
    for name in [name for name in sys.modules if name.startswith("plan_c")]:
        del sys.modules[name]
    for function in (read_params, params_from_source._class, params_from_source._parse):
        function.cache_clear()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class S:\n    pass\n", "plan_c.m:S has no Params"),
        ("class S(make()):\n    Params = P\n", "a base of plan_c.m:S is not a plain name"),
        ("class S:\n    Params = make()\n", "Params of plan_c.m:S is not a plain name"),
        ("class S:\n    Params: type\n", "Params of plan_c.m:S is not a plain name"),
        ("class S:\n    Params = Q\n", "plan_c.m neither defines nor imports Q"),
        ("from .other import Q\nclass S:\n    Params = Q\n", "neither defines nor imports Q"),
        ("from x import Q as R\nclass S:\n    Params = Q\n", "neither defines nor imports Q"),
        ("from plan_c.gone import Q\nclass S:\n    Params = Q\n", "no source of plan_c.gone"),
        ("from nowhere.at import Q\nclass S:\n    Params = Q\n", "no source of nowhere.at"),
        ("class Q:\n    x = 1\nclass S:\n    Params = Q\n", "Q has more than fields"),
        ("class Q:\n    x: int = y\nclass S:\n    Params = Q\n", "name 'y' is not defined"),
    ],
)
def test_what_cannot_be_read_says_why(write: Callable[..., None], source: str, reason: str) -> None:
    write(m=FIELDS + source)
    with pytest.raises(Unreadable) as caught:
        read_params("plan_c.m:S")
    assert reason in str(caught.value)


def test_bases_of_other_packages_have_no_settings(write: Callable[..., None]) -> None:
    write(m=FIELDS + "from nowhere.at import Base\nclass S(Base):\n    Params = P\n")
    assert read_params("plan_c.m:S")().one == 1


def test_settings_are_found_through_imports_of_both_classes(write: Callable[..., None]) -> None:
    write(
        a=FIELDS,
        b="from plan_c.a import P\nclass Base:\n    other = 3\n    Params = P\n",
        c="from plan_c.b import Base\nclass S(Base):\n    number: int = 4\n",
    )
    made = read_params("plan_c.c:S")
    assert [(f.name, f.default) for f in dataclasses.fields(made)] == [("one", 1)]
    assert not [name for name in sys.modules if name.startswith("plan_c.")]


@pytest.mark.parametrize("postponed", [True, False])
def test_annotations_are_text_where_the_module_postpones_them(
    write: Callable[..., None], postponed: bool
) -> None:
    head = "from __future__ import annotations\n" if postponed else ""
    write(m=head + FIELDS + "class S:\n    Params = P\n")
    (field,) = dataclasses.fields(read_params("plan_c.m:S"))
    assert field.type == ("int" if postponed else int)
