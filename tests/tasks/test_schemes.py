"""Every scheme in small cases worked by hand, and against Flower's partitioners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from splits import TEN_CLASSES, divide

from fedsuite.core.settings import UserError
from tasks.flower_partitioners import divide_by
from tasks.partitions import group_of
from tasks.split import label_counts


def flower_partitioners() -> dict[str, Callable[[], Any]]:
    from flwr_datasets import partitioner as flower

    return {
        "iid": lambda: flower.IidPartitioner(7),
        "dirichlet": lambda: flower.DirichletPartitioner(
            7, "label", 0.3, 2, self_balancing=True, shuffle=False, seed=5
        ),
        "pathological": lambda: flower.PathologicalPartitioner(
            12, "label", 2, "first-deterministic", shuffle=False, seed=5
        ),
        "sizes": lambda: flower.SizePartitioner([1, 50, 9, 240]),
        "shards": lambda: flower.ShardPartitioner(
            7, "label", num_shards_per_partition=2, shard_size=3, shuffle=False, seed=5
        ),
    }


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["iid", "dirichlet", "pathological", "sizes", "shards"])
def test_label_column_answers_as_a_plain_dataset_does(name: str) -> None:
    from datasets import Dataset

    labels = np.random.default_rng(0).integers(0, 10, 300)
    if name == "shards":
        labels = np.sort(labels)
    plain = flower_partitioners()[name]()
    plain.dataset = Dataset.from_dict({"label": labels, "row": np.arange(300)})
    wanted = [list(plain.load_partition(i)["row"]) for i in range(plain.num_partitions)]
    got = divide_by(flower_partitioners()[name](), labels)
    assert [part.tolist() for part in got] == wanted


def test_iid_sizes_differ_by_one_at_most() -> None:
    assert sorted(len(part) for part in divide("iid", np.zeros(23, int), 5)) == [4, 4, 5, 5, 5]


def test_large_alpha_is_even_and_small_alpha_is_not() -> None:
    labels = np.repeat(np.arange(10), 600)
    even = label_counts(divide("dirichlet", labels, 10, dirichlet_alpha=1000.0), labels, 10)
    skewed = label_counts(divide("dirichlet", labels, 10, dirichlet_alpha=0.1), labels, 10)
    # Beta(1000, 9000) has mean 0.1 and deviation 0.003, so 600 rows give 60 +- 2.
    assert even.min() >= 48 and even.max() <= 72
    assert skewed.min() == 0 and skewed.max() >= 300


def test_shards_of_twelve_labels() -> None:
    # Sorted 000011112222 in 6 shards of 2: 00 00 11 11 22 22; each of 3 clients gets two.
    labels = np.array([2, 0, 1, 0, 1, 2, 2, 1, 0, 0, 1, 2])
    for seed in range(5):
        counts = label_counts(divide("shards", labels, 3, seed), labels, 3)
        assert counts.sum(axis=1).tolist() == [4, 4, 4]
        assert counts.sum(axis=0).tolist() == [4, 4, 4]
        assert (counts % 2 == 0).all()


def test_shards_lose_no_remainder() -> None:
    # 17 = 3+3+3+2+2+2+2 in 7 shards of one client each.
    parts = divide("shards", np.arange(17) % 4, 7, shards_per_client=1)
    assert sorted(len(part) for part in parts) == [2, 2, 2, 2, 3, 3, 3]


def test_fedbac_leaves_most_of_300_shards_unused() -> None:
    labels = np.repeat(np.arange(10), 300)
    counts = label_counts(divide("shards", labels, 20, num_shards=300), labels, 10)
    assert counts.sum(axis=1).tolist() == [20] * 20
    assert (counts % 10 == 0).all()
    assert np.count_nonzero(counts, axis=1).max() <= 2


def test_pathological_holds_every_class_with_many_clients() -> None:
    parts = divide("pathological", TEN_CLASSES, 20)
    counts = label_counts(parts, TEN_CLASSES, 10)
    assert (np.count_nonzero(counts, axis=1) == 2).all()
    assert all(counts[client, client % 10] > 0 for client in range(20))
    assert counts.sum() == 600


@pytest.mark.parametrize(("clients", "held"), [(5, 10), (3, 6), (9, 10)])
def test_pathological_holds_all_it_can_with_few_clients(clients: int, held: int) -> None:
    counts = label_counts(divide("pathological", TEN_CLASSES, clients), TEN_CLASSES, 10)
    assert (np.count_nonzero(counts, axis=1) == 2).all()
    holders = np.count_nonzero(counts, axis=0)
    assert np.count_nonzero(holders) == held
    assert holders.max() - holders.min() <= 1
    assert counts.sum() == 60 * held


def test_natural_pools_owners_up_to_a_number_of_rows() -> None:
    """Owners of 5 rows each onto 2 clients, 18 rows wanted: three owners and 3 rows of a fourth.

    The first two drawn start a client each, the third joins client 0 and the cut one client 1.
    """
    owners = np.repeat(np.arange(6), 5)
    for seed in range(4):
        parts = divide("natural", owners % 2, 2, seed, owners=owners, natural_rows=18)
        shares = [np.bincount(owners[part], minlength=6) for part in parts]
        assert [sorted(share[share > 0].tolist()) for share in shares] == [[5, 5], [3, 5]]


def test_natural_takes_all_rows_where_all_are_wanted() -> None:
    owners = np.array([0] * 4 + [1, 2, 3, 3])
    parts = divide("natural", owners % 2, 2, owners=owners, natural_rows=8)
    assert sum(len(part) for part in parts) == 8
    held = [set(owners[part].tolist()) for part in parts]
    assert not held[0] & held[1]


def test_natural_says_what_number_of_rows_it_cannot_pool() -> None:
    owners = np.repeat(np.arange(3), 5)
    with pytest.raises(UserError, match=r"'16' for natural-rows: there are 15 samples"):
        divide("natural", owners, 2, owners=owners, natural_rows=16)
    with pytest.raises(UserError, match=r"'5' for natural-rows: so many are held by 1 of .* = 2"):
        divide("natural", owners, 2, owners=owners, natural_rows=5)


def test_groups_take_turns() -> None:
    assert "".join(group_of(client, 7) for client in range(7)) == "ABCABCA"
    assert Counter(group_of(c, 20) for c in range(20)) == {"A": 7, "B": 7, "C": 6}
    with pytest.raises(ValueError, match="no client 7 among 7"):
        group_of(7, 7)


@pytest.mark.parametrize(
    ("classes", "held"), [(10, [1, 2, 5]), (62, [6, 12, 31]), (5, [1, 1, 3]), (2, [1, 1, 1])]
)
def test_groups_see_10_20_and_50_percent_of_the_labels(classes: int, held: list[int]) -> None:
    labels = np.tile(np.arange(classes), 40)
    counts = label_counts(divide("groups", labels, 20), labels, classes)
    assert np.count_nonzero(counts, axis=1).tolist() == (held * 7)[:20]
    assert counts.sum() == len(labels)


def test_groups_divide_a_class_equally_among_its_holders() -> None:
    # 7 x 1 + 7 x 2 + 6 x 5 = 51 places for 10 classes: one class has 6 holders, nine have 5.
    # 30 rows of a class are then 6 pieces of 5 or 5 pieces of 6.
    labels = np.tile(np.arange(10), 30)
    counts = label_counts(divide("groups", labels, 20), labels, 10)
    assert sorted(np.count_nonzero(counts, axis=0)) == [5] * 9 + [6]
    assert Counter(counts[counts > 0].tolist()) == {5: 6, 6: 45}


def test_natural_follows_the_owners() -> None:
    owners = np.array([5, 9, 5, 7, 9, 9])
    parts = divide("natural", np.zeros(6, int), 3, owners=owners)
    assert [part.tolist() for part in parts] == [[0, 2], [3], [1, 4, 5]]
    names = np.array(["ann", "eve", "ann", "bob", "eve", "eve"])
    parts = divide("natural", np.zeros(6, int), 3, owners=names)
    assert [part.tolist() for part in parts] == [[0, 2], [3], [1, 4, 5]]


def test_natural_draws_some_owners_in_owner_order() -> None:
    owners = np.repeat(np.arange(40), 3)
    drawn = [int(part[0]) // 3 for part in divide("natural", owners, 10, owners=owners)]
    assert drawn == sorted(drawn) and len(set(drawn)) == 10
    assert drawn != list(range(10))


@pytest.mark.parametrize(
    ("rows", "clients", "ratio", "sizes"),
    [
        (700, 3, 4.0, [100, 200, 400]),
        (111, 3, 100.0, [1, 10, 100]),
        (12, 4, 1.0, [3, 3, 3, 3]),
        (13, 3, 1e9, [1, 1, 11]),
        (5, 1, 10.0, [5]),
        (4, 4, 10.0, [1, 1, 1, 1]),
    ],
)
def test_sizes_grow_geometrically(rows: int, clients: int, ratio: float, sizes: list[int]) -> None:
    parts = divide("sizes", np.zeros(rows, int), clients, size_ratio=ratio)
    assert [len(part) for part in parts] == sizes
