"""A small dataset split by hand: probes, own tests, pooling, seeds and the cache."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsuite.core.protocol import OWN
from fedsuite.core.seeds import generator, integer
from fedsuite.core.settings import UserError
from tasks import schemes, split
from tasks.dataset_cache import Dataset
from tasks.datasets import DATASETS
from tasks.inputs import Number, TableInputs
from tasks.labels import Labels
from tasks.partitions import PARTITIONS, PartitionOptions, group_of
from tasks.schemes import _geometric_sizes
from tasks.shapes import DataShape
from tasks.split import (
    Split,
    cached_split,
    divide,
    draw_probe,
    fingerprint,
    hold_out_own_test,
    label_counts,
    partition,
)
from tasks.task import Task, open_task
from tasks.task_spec import TaskSpec

TRAIN, TEST = 40, 8


def dataset(kind: str = "tabular", classes: int = 4, **changes: Any) -> Dataset:
    """Row i of 48 holds (i, -i) and has class i mod 4, owner i mod 5; 40 are train rows."""
    rows = np.arange(TRAIN + TEST)
    made = Dataset(
        spec=DATASETS["adult"],
        shape=DataShape(kind, (2,), classes),
        x=np.stack([rows, -rows], axis=1).astype(np.float32),
        y=(rows % 4).astype(np.int64),
        owners=(rows % 5).astype(np.int32),
        num_train=TRAIN,
        inputs=TableInputs((Number("up", 0.0, 1.0), Number("down", 0.0, 1.0))),
        labels=Labels("label", tuple("abcd")),
        source="embedded",
    )
    return dataclasses.replace(made, **changes)


def spec(**changes: Any) -> TaskSpec:
    settings: dict[str, Any] = {
        "dataset": "adult",
        "data_root": "",
        "partition": "iid",
        "options": PartitionOptions(),
        "num_clients": 4,
        "seed": 3,
    }
    return TaskSpec(**(settings | changes))


def test_parts_are_of_train_rows_and_the_test_is_the_rest() -> None:
    made = divide(spec(), dataset())
    assert [len(part) for part in made.train] == [10] * 4
    assert sorted(np.concatenate(made.train)) == list(range(40))
    assert made.test.tolist() == list(range(40, 48))
    assert len(made.probe) == 0 and [len(part) for part in made.own_test] == [0] * 4


def test_parts_are_those_of_the_partition_with_its_own_seed() -> None:
    """The seed of the partition is the 31-bit integer for that purpose."""
    made = divide(spec(partition="dirichlet"), dataset())
    labels = dataset().y[:40]
    wanted = partition("dirichlet", labels, 4, PartitionOptions(), integer(3, "partition"))
    assert [part.tolist() for part in made.train] == [part.tolist() for part in wanted]


def test_the_probe_goes_first_and_pooling_adds_the_test_rows() -> None:
    """2 of 4 classes are 8 probe rows; 32 + 8 rows are divided by 4; a fifth of 10 is 2."""
    options: dict[str, Any] = {"probe_per_class": 2, "pool_train_test": True}
    made = divide(spec(**options, client_test_fraction=0.2), dataset())
    assert np.bincount(made.probe % 4).tolist() == [2, 2, 2, 2] and made.probe.max() < 40
    assert [len(part) for part in made.train] == [8] * 4
    assert [len(part) for part in made.own_test] == [2] * 4
    assert made.test.tolist() == sorted(np.concatenate(made.own_test))
    assert sorted(np.concatenate([made.probe, made.test, *made.train])) == list(range(48))


def test_owners_are_those_of_the_pool() -> None:
    made = divide(spec(partition="natural", num_clients=5, probe_per_class=1), dataset())
    assert [set(part % 5) for part in made.train] == [{owner} for owner in range(5)]
    with pytest.raises(UserError, match="rows have owners"):
        divide(spec(partition="natural"), dataset(owners=None))


def test_classes_count_unless_they_are_characters() -> None:
    """A fifth class without rows stops a scheme that deals classes; characters may be missing."""
    with pytest.raises(UserError, match="no samples of class 4"):
        divide(spec(partition="groups"), dataset(classes=5))
    assert len(divide(spec(partition="groups"), dataset("chars", classes=5)).train) == 4


def test_a_probe_is_drawn_class_by_class_without_repetition() -> None:
    draw = generator(7, "probe")
    wanted = [draw.choice(np.arange(label, 40, 4), 3, replace=False) for label in range(4)]
    probe = draw_probe(dataset(), np.arange(40), 3, 7)
    assert probe.tolist() == sorted(np.concatenate(wanted))
    assert len(set(probe.tolist())) == 12
    none = draw_probe(dataset(), np.arange(40), 0, 7)
    assert none.dtype == np.int64 and len(none) == 0


def test_a_probe_leaves_a_row_of_every_class() -> None:
    """A class has 10 training rows: 9 can be taken, 10 cannot; rare characters are left out."""
    assert len(draw_probe(dataset(), np.arange(40), 9, 0)) == 36
    with pytest.raises(UserError, match="class 0 of adult has 10 training samples, and some must"):
        draw_probe(dataset(), np.arange(40), 10, 0)
    rare = dataset("chars", classes=9)
    assert len(draw_probe(rare, np.arange(40), 2, 0)) == 8
    few = np.array([0, 4, 8, 1, 2, 6, 10, 14])  # classes 0: 3, 1: 1, 2: 4, 3: none
    assert sorted(draw_probe(rare, few, 2, 0) % 4) == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("rows", "fraction", "held"),
    [(10, 0.25, 2), (10, 0.35, 4), (10, 0.01, 1), (10, 0.99, 9), (2, 0.5, 1), (3, 0.9, 2)],
)
def test_both_sides_of_an_own_test_have_a_row(rows: int, fraction: float, held: int) -> None:
    """Python rounds 2.5 to 2 and 3.5 to 4; at least one row and at most all but one."""
    kept, own = hold_out_own_test(np.arange(100, 100 + rows), fraction, 0, 1)
    assert (len(kept), len(own)) == (rows - held, held)
    assert sorted([*kept, *own]) == list(range(100, 100 + rows))
    assert kept.tolist() == sorted(kept) and own.tolist() == sorted(own)


def test_own_tests_follow_seed_and_client() -> None:
    rows = np.arange(1000)
    draws = {
        (seed, client): tuple(hold_out_own_test(rows, 0.1, seed, client)[1])
        for seed in (0, 1)
        for client in (0, 1)
    }
    assert len(set(draws.values())) == 4
    order = generator(1, "hold-out", 0).permutation(1000)
    assert draws[1, 0] == tuple(sorted(order[:100]))
    assert draws[0, 0] == tuple(hold_out_own_test(rows, 0.1, 0, 0)[1])


def test_no_own_test_leaves_the_rows_as_they_are() -> None:
    kept, own = hold_out_own_test(np.array([5]), 0.0, 0, 0)
    assert kept.tolist() == [5] and own.tolist() == []
    with pytest.raises(UserError, match="at least 2 samples per client, but client 7 has 1"):
        hold_out_own_test(np.array([5]), 0.5, 0, 7)


@pytest.mark.parametrize("scheme", [name for name in PARTITIONS if name != "natural"])
def test_every_scheme_follows_its_seed(scheme: str) -> None:
    labels = np.tile(np.arange(10), 60)

    def drawn(seed: int) -> list[list[int]]:
        return [part.tolist() for part in partition(scheme, labels, 6, PartitionOptions(), seed)]

    assert drawn(1) == drawn(1) != drawn(2)
    for part in drawn(1):
        assert part == sorted(set(part))
    assert len({row for part in drawn(1) for row in part}) == sum(map(len, drawn(1))) == 600


def test_natural_follows_its_seed() -> None:
    owners = np.repeat(np.arange(30), 2)
    options = PartitionOptions()
    parts = [partition("natural", owners, 5, options, seed, owners) for seed in (1, 1, 2)]
    first, again, other = [[int(part[0]) // 2 for part in drawn] for drawn in parts]
    assert first == again != other
    wanted = np.sort(generator(1, "owners").permutation(30)[:5])
    assert first == wanted.tolist()


def test_rows_are_put_in_a_seeded_order_before_they_are_cut() -> None:
    order = generator(5, "partition order").permutation(12)
    parts = partition("iid", np.zeros(12, int), 3, PartitionOptions(), 5)
    assert [part.tolist() for part in parts] == np.sort(order.reshape(3, 4)).tolist()
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}


def test_iid_of_one_client_and_of_as_many_as_rows() -> None:
    whole = partition("iid", np.zeros(5, int), 1, PartitionOptions(), 0)
    assert [part.tolist() for part in whole] == [[0, 1, 2, 3, 4]]
    single = partition("iid", np.zeros(5, int), 5, PartitionOptions(), 0)
    assert sorted(int(part[0]) for part in single) == [0, 1, 2, 3, 4]


def test_labels_must_be_within_the_classes() -> None:
    for labels in ([0, 1, 3], [-1, 0, 1]):
        with pytest.raises(ValueError, match="outside 3 classes"):
            partition("iid", np.array(labels), 1, PartitionOptions(), 0, num_classes=3)
    assert partition("iid", np.array([0, 2]), 1, PartitionOptions(), 0, num_classes=3)
    assert partition("iid", np.array([-1, 9]), 1, PartitionOptions(), 0)


def test_advice_names_the_schemes_settings_or_more_data(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = [np.array([0, 1]), np.array([], dtype=np.int64)]
    for scheme in ("iid", "shards"):
        monkeypatch.setattr(schemes, scheme, lambda request: empty)
    with pytest.raises(UserError) as caught:
        partition("iid", np.zeros(4, int), 2, PartitionOptions(), 0)
    assert str(caught.value) == (
        "partition 'iid' left client 1 without data (2 clients, 4 samples). Use fewer clients, "
        "another partition or more data."
    )
    with pytest.raises(UserError) as caught:
        partition("shards", np.zeros(4, int), 2, PartitionOptions(num_shards=4), 0)
    assert str(caught.value) == (
        "partition 'shards' with num-shards = 4 and shards-per-client = 2 left client 1 without "
        "data (2 clients, 4 samples). Use fewer clients, another partition or another num-shards "
        "or shards-per-client."
    )


def test_a_split_has_a_name_or_that_of_its_rows() -> None:
    parts = [np.array([0, 1]), np.array([2])]
    made = Split(parts, [np.array([3])], np.array([4]), np.array([5]))
    rows = [*parts, np.array([3]), np.array([4]), np.array([5])]
    assert made.fingerprint == fingerprint(rows) and len(made.fingerprint) == 16
    assert dataclasses.replace(made, name="agreed").fingerprint == "agreed"


def test_a_split_is_made_once_and_read_with_all_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path))
    asked = spec(client_test_fraction=0.3, probe_per_class=1, partition="dirichlet")
    made = cached_split(asked, dataset())
    (path,) = (tmp_path / "splits").iterdir()
    assert path.suffix == ".npz" and len(path.stem) == 24
    monkeypatch.setattr(split, "divide", lambda *_: pytest.fail("divided again"))
    read = cached_split(asked, dataset())
    for name in ("train", "own_test"):
        mine, theirs = getattr(made, name), getattr(read, name)
        assert [part.tolist() for part in mine] == [part.tolist() for part in theirs]
    assert read.probe.tolist() == made.probe.tolist() and len(made.probe) == 4
    assert read.test.tolist() == made.test.tolist() == list(range(40, 48))


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", "half", "flipped", "other"])
def test_a_damaged_split_is_made_again(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path))
    made = cached_split(spec(), dataset())
    (path,) = (tmp_path / "splits").iterdir()
    whole = path.read_bytes()
    if content == "half":
        content = whole[: len(whole) // 2]
    elif content == "flipped":
        content = whole.replace(made.train[0].tobytes(), made.train[1].tobytes())
        assert content != whole
    elif content == "other":
        other = tmp_path / "other"
        monkeypatch.setenv("FEDSUITE_CACHE", str(other))
        cached_split(spec(num_clients=5), dataset())
        content = next((other / "splits").iterdir()).read_bytes()
        monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path))
    path.write_bytes(content)
    again = cached_split(spec(), dataset())
    assert again.fingerprint == made.fingerprint and path.read_bytes() == whole
    assert "again:" in caplog.text and "is damaged" in caplog.text


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({"seed": 4}, {}),
        ({"num_clients": 5}, {}),
        ({"options": PartitionOptions(size_ratio=2.0)}, {}),
        ({}, {"num_train": 39}),
        ({}, {"y": (np.arange(48) // 2 % 4).astype(np.int64)}),
    ],
)
def test_what_the_cache_keeps_is_for_that_very_question(
    changes: dict[str, Any],
    data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path))
    cached_split(spec(), dataset())
    cached_split(spec(**changes), dataset(**data))
    assert len(list((tmp_path / "splits").iterdir())) == 2


def test_a_task_gathers_rows_and_counts_labels() -> None:
    task = Task(dataset(), divide(spec(partition="natural", num_clients=5), dataset()))
    x, y = task.rows(np.array([7, 2, 41]))
    assert x.tolist() == [[7, -7], [2, -2], [41, -41]] and y.tolist() == [3, 2, 1]
    assert task.labels(np.array([3, 4])).tolist() == [3, 0]
    # Owner 0 trains on 0, 5, 10, ..., 35: two of each class.
    assert task.label_counts().tolist() == [[2, 2, 2, 2]] * 5


def test_images_are_given_channels_first_and_ids_as_whole_numbers() -> None:
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)  # (n, H, W, C)
    empty = Split([], [], np.zeros(0, int), np.zeros(0, int))
    shape = DataShape("image", (4, 2, 3), 4)
    pictures = Task(dataset(x=image, y=np.zeros(1, np.int64), shape=shape), empty)
    x, _ = pictures.rows(np.array([0]))
    assert tuple(x.shape) == (1, 4, 2, 3) and x[0, 3, 1, 2] == 23 and x[0, 1, 0, 0] == 1
    ids = Task(dataset(x=np.array([[1, 2]], np.uint8), shape=DataShape("chars", (2,), 4)), empty)
    assert str(ids.rows(np.array([0]))[0].dtype) == "torch.int64"


def test_only_nodes_partition_their_own_data() -> None:
    with pytest.raises(UserError, match="invalid value 'own' for partition"):
        open_task.__wrapped__(spec(dataset="digits", partition=OWN))


def test_labels_are_counted_by_client_and_class() -> None:
    counts = label_counts([np.array([0, 1, 4]), np.array([3])], np.array([2, 0, 1, 1, 2]), 3)
    assert counts.tolist() == [[1, 0, 2], [0, 1, 0]]


def test_groups_follow_the_printed_shares() -> None:
    assert schemes.GROUP_LABEL_PERCENT == {"A": 10, "B": 20, "C": 50}
    for client in (-1, 3):
        with pytest.raises(ValueError, match=f"no client {client} among 3"):
            group_of(client, 3)


def test_classes_are_dealt_to_those_with_the_fewest_holders() -> None:
    """Two clients with 2 of 4 classes share none; a third takes any two of them."""
    labels = np.tile(np.arange(4), 6)
    parts = partition("pathological", labels, 3, PartitionOptions(classes_per_client=2), 0)
    held = [set(labels[part]) for part in parts]
    assert held[0] | held[1] == {0, 1, 2, 3} and len(held[2]) == 2
    counts = label_counts(parts, labels, 4)
    assert sorted(counts[counts > 0].tolist()) == [3, 3, 3, 3, 6, 6]


@pytest.mark.parametrize(
    ("total", "count", "ratio", "sizes"),
    [
        (10, 2, 3.0, [3, 7]),  # 2.5 and 7.5: the one left over goes to the first of equals
        (10, 3, 1.0, [3, 3, 4]),
        (7, 3, 100.0, [1, 1, 5]),  # 0.06, 0.63, 6.3 become 1, 1, 6: one too many
        (6, 5, 1000.0, [1, 1, 1, 1, 2]),
        (9, 1, 5.0, [9]),
    ],
)
def test_geometric_sizes_by_hand(total: int, count: int, ratio: float, sizes: list[int]) -> None:
    found = _geometric_sizes(total, count, ratio)
    assert found == sizes and json.dumps(found)


@pytest.mark.parametrize(
    ("option", "value"),
    [("dirichlet_alpha", 1e-9), ("num_shards", 0), ("shards_per_client", 1),
     ("classes_per_client", 1), ("size_ratio", 1.0)],
)  # fmt: skip
def test_the_smallest_options_are_allowed(option: str, value: Any) -> None:
    assert getattr(PartitionOptions(**{option: value}), option) == value


def test_the_defaults_of_the_schemes() -> None:
    options = PartitionOptions()
    assert (options.dirichlet_alpha, options.num_shards, options.shards_per_client) == (0.5, 0, 2)
    assert (options.classes_per_client, options.size_ratio) == (2, 10.0)
