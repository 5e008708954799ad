"""Where a suite names an algorithm, another one's settings are refused; elsewhere they are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsuite.core.settings import UserError
from fedsuite.suites.definition import read_suite

TEXT = """
title = "A table"
metric = "final_accuracy"
rows = "algo"
columns = ["data"]
runs = 8
runs-small = 4

[base]
num-clients = 4
fedprox.zeta = 0.5

[axes]
seed = [1, 2]

[axes.algo]
fedavg = {}
"fedprox weak" = { algo = "fedprox", fedprox.zeta = 0.01 }

[axes.data]
even = { partition = "iid" }
skewed = { dirichlet-alpha = 0.1 }

[small]
num-rounds = 2

[small.axes]
seed = [1]
"""
WEAK = '"fedprox weak" = { algo = "fedprox", fedprox.zeta = 0.01 }'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "fedavg = {}",
            "fedavg = { fedprox.zeta = 0.1 }",
            "axes.algo.fedavg.fedprox.zeta is a setting of fedprox and has no effect on fedavg",
        ),
        (
            WEAK,
            '"fedprox weak" = { algo = "fedprox", taco.kappa = 0.5 }',
            "axes.algo.fedprox weak.taco.kappa is a setting of taco and has no effect on fedprox",
        ),
        (
            "[axes.data]",
            "[axes.data]\nodd = { algo = 'taco', fedprox.zeta = 0.1 }",
            "axes.data.odd.fedprox.zeta is a setting of fedprox and has no effect on taco",
        ),
        (
            "[small.axes]",
            "[small.axes]\nalgo.fedavg = { fedprox.zeta = 0.1 }",
            "small.axes.algo.fedavg.fedprox.zeta is a setting of fedprox and has no effect on",
        ),
        (
            "[small.axes]",
            "[small.axes]\nalgo.fedacg = { fedprox.zeta = 0.1 }",
            "small.axes.algo.fedacg.fedprox.zeta is a setting of fedprox and has no effect on",
        ),
        (
            "[axes]",
            "[[override]]\nwhen = { algo = 'fedavg', seed = 1 }\nfedprox.zeta = 0.1\n[axes]",
            "override (algo=fedavg, seed=1).fedprox.zeta is a setting of fedprox and has no effect",
        ),
        (
            "[axes]",
            "[[override]]\nwhen = { algo = 'fedprox weak' }\ntaco.kappa = 0.1\n[axes]",
            "override (algo=fedprox weak).taco.kappa is a setting of taco and has no effect on "
            "fedprox",
        ),
        (
            "[axes]",
            "[[override]]\nwhen = { algo = ['fedavg', 'fedprox weak'] }\ntaco.kappa = 1\n[axes]",
            "override (algo=fedavg or fedprox weak).taco.kappa is a setting of taco and has no "
            "effect on fedavg or fedprox",
        ),
        (
            "[small.axes]",
            "[[small.override]]\nwhen = { algo = 'fedavg' }\nfedprox.zeta = 0.1\n[small.axes]",
            "small.override (algo=fedavg).fedprox.zeta is a setting of fedprox and has no effect",
        ),
    ],
)
def test_another_algorithms_setting_is_refused_where_an_algorithm_is_named(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in TEXT
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(UserError, match=re.escape(f"{path}: {expected}")):
        read_suite(path, "small")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[small]", "[small]\ntaco.kappa = 0.5"),
        ("num-clients = 4", "num-clients = 4\ntaco.kappa = 0.5"),
        ("even = {", "even = { fedprox.zeta = 0.1,"),
        ("[axes]", "[[override]]\nwhen = { data = 'even' }\nfedprox.zeta = 0.1\n[axes]"),
        (WEAK, '"mine" = { algo = "my_package.my_method:Mine", my-method.zeta = 0.1 }'),
    ],
)
def test_what_several_algorithms_share_may_hold_the_settings_of_each(
    tmp_path: Path, old: str, new: str
) -> None:
    assert old in TEXT
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace(old, new, 1))
    assert read_suite(path).plans and read_suite(path, "small").plans
