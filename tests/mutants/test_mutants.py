"""The sample is a function of its seed; a tiny project has a killed and a surviving mutant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.__main__ import main
from mutants.operators import Mutant, mutants_of
from mutants.sample import sample
from mutants.trace import BUDGET_SECONDS, TestMap

ROOT = Path(__file__).parents[2]


def test_the_sample_is_a_function_of_the_seed_with_one_mutant_per_line() -> None:
    source = "\n".join(f"x{i} = a + {i} < b" for i in range(40))
    mutants = mutants_of(source, "m.py")
    assert len(mutants) == 3 * 40
    drawn = sample(mutants, 10, seed=3)
    assert drawn == sample(mutants, 10, seed=3) != sample(mutants, 10, seed=4)
    assert len({mutant.line for mutant in drawn}) == 10
    assert [mutant.line for mutant in sample(mutants, 99, seed=0)] == list(range(1, 41))


def mutant(line: int, at_import: bool = False) -> Mutant:
    return Mutant("pkg/m.py", line, "constant", 0, 1, "", (line, line + 1), at_import)


def report(lines: dict[str, list[str]], seconds: dict[str, float]) -> dict[str, object]:
    return {"seconds": seconds, "failed": [], "skipped": [], "lines": {"pkg/m.py": lines}}


def test_tests_of_a_line_come_own_and_quick_first_and_one_case_before_the_others() -> None:
    tests = TestMap()
    own, other = "tests/test_m.py::", "tests/test_z.py::"
    seconds = {f"{own}a": 0.5, f"{own}b[0]": 0.2, f"{own}b[1]": 0.1, f"{own}c": 0.3}
    tests.add(report({"5": [f"{own}a", f"{own}b[0]", f"{own}b[1]"], "9": [""]}, seconds))
    tests.add(report({"5": [f"{other}d"], "7": [f"{other}e"]}, {f"{other}d": 0.1, f"{other}e": 50}))
    assert tests.tests_for(mutant(5)) == [
        f"{own}b[1]", f"{own}a", f"{other}d", f"{own}b[0]", f"{own}c",
    ]  # fmt: skip
    assert tests.tests_for(mutant(4))[0] == f"{own}b[1]"  # its statement ends in line 5
    assert tests.seconds[f"{other}e"] > BUDGET_SECONDS
    assert tests.tests_for(mutant(7))[0] == f"{other}e"  # over the budget, but there is no other
    assert tests.tests_for(mutant(9)) == [f"{own}b[1]", f"{own}c", f"{own}a", f"{own}b[0]"]
    tests.readers, tests.seconds["tests/test_r.py::f"] = {"tests/test_r.py::f"}, 0.1
    assert "tests/test_r.py::f" in tests.tests_for(mutant(9, at_import=True))
    assert "tests/test_r.py::f" not in tests.tests_for(mutant(5))
    assert tests.tests_for(mutant(9, at_import=True))[-2:] == [f"{own}b[0]", f"{own}c"]


def test_tests_that_fail_as_things_are_do_not_count() -> None:
    tests = TestMap()
    broken = report({"5": ["t.py::a", "t.py::b"]}, {"t.py::a": 0.1, "t.py::b": 0.1})
    tests.add(broken | {"failed": ["t.py::a"]})
    assert tests.tests_for(mutant(5)) == ["t.py::b"] and tests.failed == ["t.py::a"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A function that is tested, one that is only called, and one that is not even called."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.mutants]\npackages = ["pkg"]\ntests = ["tests/test_*.py"]\npreload = []\n'
        "[tool.pytest.ini_options]\n"
        'markers = ["slow: s", "ray: r", "deploy: d", "docker: d"]\n'
    )
    (tmp_path / "pkg" / "m.py").write_text(
        "def checked(a, b):\n    return a + b\n\n\n"
        "def called(a, b):\n    return a - b\n\n\n"
        "def loop(n):\n    while n > 0:\n        n -= 1\n    return n\n"
    )
    (tmp_path / "pkg" / "n.py").write_text("def unseen(a, b):\n    return a * b\n")
    (tmp_path / "tests" / "test_m.py").write_text(
        "from pkg.m import called, checked, loop\n\n\n"
        "def test_m():\n    assert checked(2, 3) == 5\n    called(2, 3)\n\n\n"
        "def test_loop():\n    assert loop(1) == 0\n"
    )
    (tmp_path / "tests" / "test_order.py").write_text(
        "from pkg.m import called\n\nSEEN = []\n\n\n"
        "def test_slow_and_first():\n    sum(range(10**6))\n    called(1, 1)\n"
        "    SEEN.append(1)\n\n\n"
        "def test_second():\n    called(1, 1)\n    assert SEEN\n"
    )
    return tmp_path


def test_a_tiny_project_has_each_outcome(tiny: Path) -> None:
    """Of five lines, a + b and the loop's two are noticed, a - b and a * b are not.

    The second test of order fails before the first, which is slower, and so decides nothing.
    """
    quick = "import sys, mutants.forks as forks; forks.TEST_SECONDS = 0.5; "
    code = f"{quick}from mutants.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--root", str(tiny), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    done = subprocess.run(command, cwd=tiny, env=environment, capture_output=True, text=True)
    text = done.stdout
    assert (done.returncode, done.stderr) == (1, "")
    assert "killed       pkg/m.py:2 (arithmetic) tests/test_m.py::test_m\n" in text
    assert "  -    return a + b\n  +    return (a - b)\n" in text
    assert "survived     pkg/m.py:6 (arithmetic) 3 tests pass\n" in text
    assert "is left out: tests/test_order.py::test_second" in text
    assert "not executed pkg/n.py:2 (arithmetic)\n" in text
    assert "timeout      pkg/m.py:11" in text
    assert (tiny / "pkg" / "m.py").read_text().startswith("def checked(a, b):\n    return a + b\n")
    assert "60.0 % killed, 85 % wanted." in text


def test_a_sample_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["typo"], ["strategies", "--count", "0"]):
        with pytest.raises(SystemExit) as refusal:
            main([*words, "--root", str(ROOT)])
        assert refusal.value.code == 2
    assert "there is nothing to change in typo" in capsys.readouterr().err
