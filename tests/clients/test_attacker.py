"""Attackers: what they send in place of an honest vector, whatever the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithms import FEW_EPOCHS
from bowl import fit, place
from safetensors.numpy import load_file

from clients.attacker import attacked, attacking
from clients.base import Training
from clients.fedavg import FedAvgClient
from clients.fedper import FedPerClient
from clients.local import LocalClient
from clients.scaffold import ScaffoldClient
from fedsuite import registry
from fedsuite.config import parse
from fedsuite.core import seeds
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.protocol import ATTACKS, LABEL_FLIP, SCALED
from fedsuite.core.settings import UserError
from strategies.fedper import FedPerParams
from strategies.scaffold import ScaffoldParams

Experiment = Callable[..., Path]
TWO_STEPS = Training(local_steps=2, batch_size=1)
HONEST = [0.75, 2.25]  # three quarters of the way to (1, 3)


@pytest.mark.parametrize(
    ("attack", "strength", "expected"),
    [
        ("sign-flip", 0.0, [-0.75, -2.25]),
        ("sign-flip", 2.0, [-1.5, -4.5]),
        ("scaled", 0.0, [7.5, 22.5]),
        ("scaled", 3.0, [2.25, 6.75]),
        ("label-flip", 0.0, HONEST),
    ],
)
def test_what_is_sent_by_hand(
    tmp_path: Path, attack: str, strength: float, expected: list[float]
) -> None:
    """Without a strength it is 1, or 10 of ``scaled``. A bowl has no labels to flip."""
    cls = attacking(FedAvgClient, attack, strength)
    (update,), count, metrics = fit(cls, place(tmp_path, TWO_STEPS), [0, 0])
    assert update.tolist() == expected
    assert (count, metrics["steps"]) == (1, 2), "its numbers are those of an honest client"


def test_noise_is_as_long_as_what_it_replaces(tmp_path: Path) -> None:
    """|(3, 4)| = 5, times 2, in the direction drawn for (seed, round, client)."""
    drawn = seeds.generator(0, "attack", 1, 0).standard_normal(2)
    found = attacked(
        np.array([3, 4], np.float32), "gaussian", 2.0, seeds.generator(0, "attack", 1, 0)
    )
    np.testing.assert_allclose(found, 10 * drawn / np.linalg.norm(drawn), rtol=1e-6)
    cls = attacking(FedAvgClient, "gaussian")
    sent = [
        fit(cls, place(tmp_path, TWO_STEPS, number), [0, 0])[0][0].tolist() for number in (1, 1, 2)
    ]
    assert sent[0] == sent[1] != sent[2]
    assert np.linalg.norm(sent[0]) == pytest.approx(np.linalg.norm(HONEST), rel=1e-6)


def test_labels_are_reversed_and_inputs_are_not(tmp_path: Path) -> None:
    client = attacking(FedAvgClient, "label-flip")(place(tmp_path, TWO_STEPS))
    ((x, y),) = client.batches([np.array([0])])
    assert x.tolist() == [[1, 3]] and y.tolist() == [1], "of two classes 0 becomes 1"
    honest = attacking(FedAvgClient, "scaled")(place(tmp_path, TWO_STEPS))
    assert torch.equal(next(honest.batches([np.array([0])]))[1], torch.tensor([0]))


def test_the_first_vector_is_the_one_that_matters(tmp_path: Path) -> None:
    """SCAFFOLD's change of the control variate stays honest; FedPer's part is what it sends; who
    sends nothing has nothing to change.
    """
    params = ScaffoldParams(control="gradient")
    cls = attacking(ScaffoldClient, "sign-flip")
    context = place(tmp_path / "a", TWO_STEPS)
    (update, change), _, _ = fit(cls, context, [0, 0], [0, 0], params=params, counted=0)
    assert update.tolist() == [-0.75, -2.25] and change.tolist() == [-0.75, -2.25]
    part = attacking(FedPerClient, "scaled", 2.0)
    (sent,), _, _ = fit(part, place(tmp_path / "b", TWO_STEPS), [0], params=FedPerParams())
    assert sent.tolist() == [1.5]
    nothing, _, _ = fit(attacking(LocalClient, "scaled"), place(tmp_path / "c", TWO_STEPS))
    assert nothing == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attackers": "3,3,12,"}, "invalid value '3,3,12,' for attackers"),
        ({"attackers": "some"}, "for attackers: it takes a count"),
        ({"attackers": "2", "freeloaders": "1"}, "client 9 cannot be both"),
        ({"attackers": "0,1,2,3,4,", "freeloaders": "5"}, "at least one client must be honest"),
        ({"attackers": "2", "attack": "tickle"}, "tickle"),
        ({"attackers": "2", "attack-strength": -1}, "attack-strength"),
        ({"attackers": "2", "algo": "local"}, "attack=scaled has no effect on local"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse({"algo": "fedavg", "num-clients": 10, "attack": "scaled"} | given, idle="refuse")


def test_who_attacks() -> None:
    config = parse({"num-clients": 10, "attack": "scaled", "attackers": "3"})
    assert config.attacker_ids == (7, 8, 9)
    assert parse({"num-clients": 10, "attackers": "3"}).attacker_ids == (), "without an attack none"
    flipped = {"algo": "local", "attack": "label-flip", "attackers": "3"}
    assert parse(flipped | {"num-clients": 10}, idle="refuse").attacker_ids == (7, 8, 9)


def test_a_run_under_attack(experiment: Experiment) -> None:
    """Two of five send ten times their update: the mean is dragged along, the median is not."""
    settings = {"num_clients": 5, "local_steps": 1, "num_rounds": 1}
    bad = {"attack": "scaled", "attackers": "0,3,", "attack_strength": 1000.0}
    loss = {
        (algo, bool(how)): read_lines(experiment(algo, **settings, **how) / "history.jsonl")[1][
            "loss"
        ]
        for algo in ("fedavg", "median")
        for how in ({}, bad)
    }
    assert loss["fedavg", True] > 10 * loss["fedavg", False]
    assert loss["median", True] < 2 * loss["median", False]


def left_by(folder: Path, clients: set[int]) -> list[Any]:
    """What a run has made: shared results, and some clients' states and rows but for times."""
    known = {f"{client:06d}" for client in clients}
    files = [*folder.glob("*.safetensors"), *(folder / "clients").rglob("*.safetensors")]
    own = [f for f in sorted(files) if f.parent == folder or f.parent.name in known]
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["client"] in clients]
    return [
        *(file.read_bytes() for file in own),
        *({k: v for k, v in row.items() if "seconds" not in k} for row in rows),
    ]


def affinities(folder: Path) -> np.ndarray:
    return load_file(folder / "checkpoint" / "latest.safetensors")["strategy.affinity"]


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(registry.ALGORITHMS))
def test_every_attack_on_every_algorithm_ends_well_and_does_something(
    experiment: Experiment, algo: str
) -> None:
    """Client 2 of three attacks, in two steps, since STEM's update lacks the last one.

    Honest clients see it, by what they get or how they are weighed. Where nothing is sent flipped
    labels change the attacker's own model alone. FedFomo's clients gain nothing by a model ten
    times as far away and take nothing of it: the server knows.
    """
    settings: dict[str, Any] = {"num_clients": 3, "local_steps": 2} | FEW_EPOCHS.get(algo, {})
    seen = {0, 1} if registry.find(algo).client.sends else {2}
    calm = experiment(algo, **settings)
    for attack in ATTACKS if seen == {0, 1} else (LABEL_FLIP,):
        folder = experiment(algo, attack=attack, attackers="1", **settings)
        summary = read_document(folder / "summary.json")
        assert (summary["status"], summary["failed_replies"]) == ("finished", 0), attack
        if (algo, attack) == ("fedfomo", SCALED):
            assert not np.array_equal(affinities(folder), affinities(calm))
            continue
        assert left_by(folder, seen) != left_by(calm, seen), attack


def test_the_summary_says_who_was_found(experiment: Experiment) -> None:
    folder = experiment(attack="sign-flip", attackers="1", local_steps=1, num_rounds=1)
    summary = read_document(folder / "summary.json")
    assert (summary["attacker_tpr"], summary["freeloader_tpr"]) == (0.0, None)
    assert summary["freeloader_fpr"] == 0.0
