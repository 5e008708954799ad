"""What is from outside: found by its reference or its registered name, refused with a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsuite.core import plugins
from fedsuite.core.settings import UserError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the Python path with a package that registers a model."""
    (tmp_path / "outlander").mkdir()
    (tmp_path / "outlander" / "__init__.py").write_text("")
    (tmp_path / "outlander" / "models.py").write_text("def build(shape):\n    return shape\n")
    info = tmp_path / "outlander-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outlander\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedsuite.models]\nkilt = outlander.models:build\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    plugins.registered.cache_clear()
    plugins.source_version.cache_clear()
    for name in [name for name in sys.modules if name.startswith("outlander")]:
        del sys.modules[name]


def test_a_registered_name_leads_to_its_attribute_and_is_imported_only_then(site: Path) -> None:
    assert plugins.registered("model")["kilt"] == "outlander.models:build"
    assert plugins.reference_of("model", "kilt") == "outlander.models:build"
    assert plugins.reference_of("dataset", "kilt") == ""
    assert "outlander.models" not in sys.modules
    assert plugins.find("model", "kilt", ())(3) == plugins.find(
        "model", "outlander.models:build", ()
    )(3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kit", "invalid value 'kit' for model: Did you mean 'kilt'? Choices: kilt, mlp."),
        ("nowhere:build", "there is no module 'nowhere' on the Python path. Install it"),
        ("outlander.models:make", "module 'outlander.models' has no 'make'."),
        ("out lander:make", "Choices: kilt, mlp."),
    ],
)
def test_what_is_not_there_is_refused_with_a_sentence(site: Path, name: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        plugins.find("model", name, ["mlp"])
    assert said in str(error.value)


def test_a_failing_import_of_the_package_is_its_own(site: Path) -> None:
    (site / "outlander" / "broken.py").write_text("import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        plugins.find("model", "outlander.broken:build", ())


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("digits", "digits"),
        ("fashion-mnist", "fashion-mnist"),
        ("my_package.my_module:build", "my-module"),
        ("/data/my visits.csv", "my-visits"),
        ("../photos", "photos"),
        ("hf:uoft-cs/cifar100", "cifar100"),
        ("./", "data"),
    ],
)
def test_a_short_name_can_be_part_of_a_folders_name(name: str, short: str) -> None:
    assert plugins.short_name(name) == short


def test_the_version_of_a_source_changes_with_any_module_of_its_package(site: Path) -> None:
    before = plugins.source_version("outlander.models:build")
    (site / "outlander" / "__init__.py").write_text("WIDTH = 3\n")
    forget()
    assert plugins.source_version("outlander.models:build") != before
    (site / "outlander_alone.py").write_text("A = 1\n")
    alone = plugins.source_version("outlander_alone:A")
    (site / "outlander_alone.py").write_text("A = 2\n")
    forget()
    assert plugins.source_version("outlander_alone:A") != alone
