"""Every experiment file is a set of settings the suite takes, for both of its commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fedsuite.config import all_defaults, parse, read_toml

FILES = sorted((Path(__file__).parents[1] / "sim_configs").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_experiment_file_parses_and_names_an_algorithm(file: Path) -> None:
    config = parse(read_toml(file))
    assert file.stem.startswith(config.algo)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_flower_reads_the_same_settings(file: Path) -> None:
    overrides = parse_config_args([str(file)])
    assert overrides == read_toml(file)
    assert set(overrides) <= set(all_defaults())
