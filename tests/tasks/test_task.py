"""Who has which rows: probe, parts, own tests and the global test never mix."""

from __future__ import annotations

import numpy as np
import pytest

from fedsuite.core.settings import UserError
from tasks.dataset_cache import load_dataset
from tasks.partitions import PartitionOptions
from tasks.split import divide
from tasks.task import open_task
from tasks.task_spec import TaskSpec


def spec(**changes: object) -> TaskSpec:
    settings = {
        "dataset": "digits",
        "data_root": "",
        "partition": "dirichlet",
        "options": PartitionOptions(),
        "num_clients": 5,
        "seed": 1,
    }
    return TaskSpec(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", [False, True])
def test_every_row_is_in_one_place(pool: bool) -> None:
    data = load_dataset("digits")
    split = divide(spec(probe_per_class=3, client_test_fraction=0.25, pool_train_test=pool), data)
    places = [split.probe, *split.train, *split.own_test, *([] if pool else [split.test])]
    assert sorted(np.concatenate(places)) == list(range(len(data.y)))
    if pool:
        assert sorted(split.test) == sorted(np.concatenate(split.own_test))


def test_the_probe_has_so_many_of_each_class_from_train_and_is_fixed_by_seed() -> None:
    data = load_dataset("digits")
    probe = divide(spec(probe_per_class=4), data).probe
    assert np.bincount(data.y[probe]).tolist() == [4] * 10 and probe.max() < data.num_train
    assert np.array_equal(probe, divide(spec(probe_per_class=4, num_clients=9), data).probe)
    assert not np.array_equal(probe, divide(spec(probe_per_class=4, seed=2), data).probe)


def test_a_quarter_is_held_back_by_each_client() -> None:
    split = divide(spec(client_test_fraction=0.25), load_dataset("digits"))
    for kept, held in zip(split.train, split.own_test, strict=True):
        assert len(held) == pytest.approx((len(kept) + len(held)) / 4, abs=1)


def test_a_split_read_from_the_cache_is_the_one_that_was_made() -> None:
    fresh = open_task.__wrapped__(spec(seed=77, client_test_fraction=0.5, probe_per_class=1)).split
    cached = open_task.__wrapped__(spec(seed=77, client_test_fraction=0.5, probe_per_class=1)).split
    assert fresh.fingerprint == cached.fingerprint
    assert all(np.array_equal(a, b) for a, b in zip(fresh.train, cached.train, strict=True))


def test_a_probe_larger_than_a_class_is_refused() -> None:
    with pytest.raises(UserError, match="'500' for probe-per-class"):
        divide(spec(probe_per_class=500), load_dataset("digits"))
