"""FedTGP's client by hand: features are ``a x``, logits ``(b, c) * feature``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import Fitted
from safetensors.numpy import load_file
from torch import nn

from clients.base import ClientContext, Training
from clients.fedproto import class_means, nearness, pull
from clients.fedtgp import FedTgpClient
from clients.state import ClientState
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.flat_model import FlatModel
from strategies.fedtgp import FedTgpParams

Experiment = Callable[..., Path]
ONE_STEP = Training(local_steps=1, batch_size=1)


class Line(nn.Module):
    """One feature, two classes, no offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(x))


def context(
    folder: Path,
    x: list[float],
    y: list[int],
    start: Sequence[float] = (1, 0, 0),
    how: Training = ONE_STEP,
    number: int = 1,
    client: int = 0,
    model: FlatModel | None = None,
) -> ClientContext:
    """A client whose training and test rows are the given ones."""
    rows, labels = torch.tensor(x)[:, None], np.array(y)
    everything = [np.arange(len(x))] * (client + 1)
    task: Any = SimpleNamespace(
        rows=lambda indices: (rows[indices], torch.tensor(labels[indices])),
        labels=lambda indices: labels[indices],
        shape=SimpleNamespace(num_classes=2),
        split=SimpleNamespace(train=everything, own_test=everything),
    )
    state = ClientState(folder, client, number, 0)
    initial = np.array(start, np.float32)
    model = model or FlatModel(Line())
    return ClientContext(client, number, 0, task, model, initial, initial[:0], state, how)


def fit(
    here: ClientContext, prototypes: list[float], known: list[float], lam: float = 0.5
) -> Fitted:
    received = [np.array(prototypes, np.float32)[:, None], np.array(known, np.float32)]
    return FedTgpClient(here, FedTgpParams(lam=lam)).fit(received, {"lr": 0.25})


def evaluate(here: ClientContext, prototypes: list[float], known: list[float]) -> dict[str, Any]:
    received = [np.array(prototypes, np.float32)[:, None], np.array(known, np.float32)]
    metrics = FedTgpClient(here, FedTgpParams()).evaluate(received, {})[2]
    return {name: metrics[name] for name in ("correct", "head-correct")}


def test_class_means_by_hand() -> None:
    """Class 0: (1 + 3)/2 and (2 + 4)/2. Class 1 has no rows: zeros that stand for none."""
    features = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    means, counts = class_means(features, np.array([0, 0, 2]), 3)
    assert np.array_equal(means, [[2, 3], [0, 0], [5, 6]])
    assert counts.tolist() == [2, 0, 1] and counts.dtype == means.dtype == np.float32


@pytest.mark.parametrize("size", [1e-18, 1e18])
def test_class_means_are_finite(size: float) -> None:
    means, _ = class_means(np.full((300, 2), size, np.float32), np.zeros(300, int), 2)
    np.testing.assert_allclose(means[0], size, rtol=1e-6)


def test_the_nearest_known_prototype_by_hand() -> None:
    """0.4 is nearest to 0, but that class is unknown; of 1 and -1 it is nearer to 1."""
    prototypes = torch.tensor([[0.0], [1.0], [-1.0]])
    features = torch.tensor([[0.4], [-0.4]])
    known = torch.tensor([False, True, True])
    assert nearness(features, prototypes, known | True).argmax(1).tolist() == [0, 0]
    near = nearness(features, prototypes, known)
    assert near.argmax(1).tolist() == [1, 2]
    assert near[0].tolist() == pytest.approx([-math.inf, -0.6, -1.4])
    far = nearness(features * 1e18, prototypes * 1e18, known)
    assert far.argmax(1).tolist() == [1, 2]


def test_the_pull_by_hand() -> None:
    """Two rows of two: (1, 2) from (0, 0) is 1 + 4; the second has no prototype. 5/4."""
    features = torch.tensor([[1.0, 2.0], [9.0, 9.0]], requires_grad=True)
    loss = pull(features, torch.zeros(2, 2), torch.tensor([True, False]))
    loss.backward()
    assert loss.item() == 1.25
    assert features.grad is not None
    assert features.grad.tolist() == [[0.5, 1.0], [0.0, 0.0]]


def test_a_round_by_hand(tmp_path: Path) -> None:
    """A = 1, b = c = 0, one row x = 1 of class 0, prototype 3, lam 1/2, lr 1/4.

    The head is zero, so a moves by the pull alone: slope 2 lam (1 - 3) = -2, a = 1.5. The
    cross-entropy moves (b, c) by 1/4 (1/2, -1/2). The class is then seen at 1.5; class 1 is not.
    """
    here = context(tmp_path, [1.0], [0])
    (prototypes, counts), rows, _ = fit(here, [3, 0], [1, 0])
    assert prototypes.tolist() == [1.5, 0.0] and counts.tolist() == [1, 0] and rows == 1
    state = ClientState(tmp_path, 0, 2, 0).load()
    assert state["model"].tolist() == [1.5, 0.125, -0.125]


def test_an_unknown_class_does_not_pull(tmp_path: Path) -> None:
    """The zeros sent for a class without a prototype are no target: a stays 1."""
    (prototypes, _), _, _ = fit(context(tmp_path, [1.0], [0]), [0, 0], [0, 0])
    assert prototypes[0] == 1.0


def test_the_next_round_goes_on_from_the_own_model(tmp_path: Path) -> None:
    """From a = 1.5, b = 1/8, c = -1/8: p = sigmoid(1.5/4) = 0.592667. The slope of a is
    (p - 1)(b - c) - 1.5 = -1.601833, so a = 1.900458.
    """
    fit(context(tmp_path, [1.0], [0]), [3, 0], [1, 0])
    (prototypes, _), _, _ = fit(context(tmp_path, [1.0], [0], number=2), [3, 0], [1, 0])
    assert prototypes[0] == pytest.approx(1.900458, abs=1e-5)


def test_its_scores_are_those_of_the_prototypes(tmp_path: Path) -> None:
    """Both right by prototypes: the one of class 1 is nearer to 1 than the other."""
    here = context(tmp_path, [1.0, 2.0], [1, 0], start=[1, 1, 0])
    received = [np.array([[2.0], [1.0]], np.float32), np.ones(2, np.float32)]
    _, _, metrics = FedTgpClient(here, FedTgpParams()).evaluate(received, {})
    assert (metrics["class-correct"], metrics["auc"]) == ([1, 1], 1.0)


def test_it_predicts_by_prototypes_and_not_by_its_head(tmp_path: Path) -> None:
    """Features 1 and 2. The head (1, 0) says class 0 to both; prototypes 2 and 1 know better."""
    here = context(tmp_path, [1.0, 2.0], [1, 0], start=[1, 1, 0])
    assert evaluate(here, [2, 1], [1, 1]) == {"correct": 2, "head-correct": 1}
    assert evaluate(here, [1, 2], [1, 1]) == {"correct": 0, "head-correct": 1}
    assert evaluate(here, [2, 1], [1, 0]) == {"correct": 1, "head-correct": 1}


def test_before_any_prototype_the_head_predicts(tmp_path: Path) -> None:
    here = context(tmp_path, [1.0, 2.0], [1, 0], start=[1, 1, 0])
    assert evaluate(here, [0, 0], [0, 0])["correct"] == 1


class Noisy(Line):
    """Features through batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.noise = nn.BatchNorm1d(1), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.noise(self.norm(self.body(x))))


def test_features_are_taken_without_noise(tmp_path: Path) -> None:
    """What is sent is what the trained model gives in eval mode, from its running statistics."""
    torch.manual_seed(0)
    module = Noisy()
    model = FlatModel(module)
    here = context(tmp_path, [1.0, 2.0, 4.0, 8.0], [0, 0, 1, 1], model=model)
    how = Training(local_epochs=2, batch_size=4)
    here = replace(
        here, initial=model.vector(), initial_buffers=model.buffer_vector(), training=how
    )
    (prototypes, _), _, _ = fit(here, [3, -3], [1, 1])
    statistics = model.buffer_vector()
    module.eval()
    with torch.no_grad():
        features = module.norm(module.body(torch.tensor([[1.0], [2.0], [4.0], [8.0]])))
    expected = features.reshape(2, 2).mean(dim=1)
    np.testing.assert_allclose(prototypes, expected.numpy(), rtol=1e-6)
    kept = ClientState(tmp_path, 0, 2, 0).load()
    assert np.array_equal(kept["buffers"], statistics) and np.abs(statistics - [0, 1]).min() > 0
    model.load(model.vector(), np.array([99, 99], np.float32))
    first, second = (evaluate(here, [3, -3], [1, 1]) for _ in range(2))
    assert first == second and np.array_equal(model.buffer_vector(), statistics)


def test_clients_of_one_process_share_nothing(tmp_path: Path) -> None:
    """Two clients take turns in one workspace, and each sends what it would send alone."""
    data = {0: ([1.0, 2.0], [0, 1]), 1: ([-3.0, 5.0], [1, 0])}

    def rounds(folder: str, clients: list[int], model: FlatModel) -> list[tuple[int, bytes]]:
        seen = []
        for number in (1, 2, 3):
            for client in clients:
                x, y = data[client]
                here = context(
                    tmp_path / folder, x, y, (1, 0.5, 0.2), ONE_STEP, number, client, model
                )
                vectors, _, _ = fit(here, [3, -1], [1, 1])
                seen.append((client, b"".join(v.tobytes() for v in vectors)))
                evaluate(here, [3, -1], [1, 1])
        return seen

    together = rounds("both", [0, 1], FlatModel(Line()))
    for client in (0, 1):
        alone = rounds(f"alone{client}", [client], FlatModel(Line()))
        assert alone == [row for row in together if row[0] == client]


def models(folder: Path) -> dict[str, np.ndarray]:
    """Each client's newest model."""
    files = {path.parent.name: path for path in sorted((folder / "clients").rglob("*.safet*"))}
    return {client: load_file(path)["model"] for client, path in files.items()}


def test_without_the_pull_it_is_local_bit_for_bit(experiment: Experiment) -> None:
    alone = models(experiment("local", num_rounds=3))
    free = models(experiment("fedtgp", num_rounds=3, **{"fedtgp.lam": 0}))
    pulled = models(experiment("fedtgp", num_rounds=3))
    assert len(alone) == 4
    for client, vector in alone.items():
        assert free[client].tobytes() == vector.tobytes()
        assert pulled[client].tobytes() != vector.tobytes()


def test_it_differs_from_fedavg(experiment: Experiment) -> None:
    """No client ends with the model that FedAvg gives everybody."""
    same_rows = {"client_test_fraction": 0.25}
    shared = load_file(experiment("fedavg", **same_rows) / "model.safetensors")["fc.weight"]
    for vector in models(experiment("fedtgp", **same_rows)).values():
        assert not np.array_equal(vector[-90:-10], shared.ravel())


def test_clients_who_never_trained_are_scored_too(experiment: Experiment) -> None:
    folder = experiment("fedtgp", num_clients=6, fraction_train=0.34, num_rounds=1)
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "evaluate"]
    assert [row["status"] for row in rows] == ["ok"] * 6


@pytest.mark.usefixtures("small_resnet")
def test_a_batch_norm_model_trains(experiment: Experiment) -> None:
    few = {"num_clients": 40, "fraction_train": 0.05, "num_rounds": 1, "personal_eval": "off"}
    folder = experiment("fedtgp", model="resnet18", **few, **{"fedtgp.prototype_epochs": 2})
    assert read_document(folder / "summary.json")["failed_replies"] == 0
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    assert {row["upload_bytes"] for row in rows} == {4 * (10 * 16 + 10)}


def test_before_any_prototype_the_head_decides_both_counts(tmp_path: Path) -> None:
    """Features 1, 2 and 3 and the head (1, 0): class 0 to all of them, right for two of three."""
    here = context(tmp_path, [1.0, 2.0, 3.0], [0, 1, 0], start=[1, 1, 0])
    assert evaluate(here, [0, 0], [0, 0]) == {"correct": 2, "head-correct": 2}
    known = evaluate(here, [1, 2], [1, 1])  # 1 is nearest to 1, 2 and 3 to 2
    assert known == {"correct": 2, "head-correct": 2}


def test_more_rows_than_a_batch_are_all_seen(tmp_path: Path) -> None:
    """300 rows of feature x = 1 .. 300, all of class 0: mean 150.5, and a head that is right."""
    x = [float(n) for n in range(1, 301)]
    here = context(tmp_path, x, [0] * 300, start=[1, 1, 0])
    received = [np.zeros((2, 1), np.float32), np.zeros(2, np.float32)]
    client = FedTgpClient(here, FedTgpParams(lam=0.0))
    (prototypes, counts), rows, _ = client.fit(received, {"lr": 0.0})
    assert prototypes.tolist() == [150.5, 0.0] and counts.tolist() == [300, 0] and rows == 300
    loss, count, metrics = client.evaluate(received, {})
    assert (count, metrics["correct"], metrics["head-correct"]) == (300, 300, 300)
    expected = np.log1p(np.exp(-np.arange(1, 301))).sum() / 300  # log(1 + e^-x), mean over rows
    assert loss == pytest.approx(expected, rel=1e-5)


def test_what_is_sent_has_a_length_per_class_and_feature(tmp_path: Path) -> None:
    client = FedTgpClient(context(tmp_path, [1.0], [0]), FedTgpParams())
    assert (client.length("prototypes"), client.length("counts")) == (2 * 1, 2)
    wide = FlatModel(nn.Sequential(nn.Linear(2, 5), nn.Linear(5, 3)))
    client = FedTgpClient(context(tmp_path, [1.0], [0], model=wide), FedTgpParams())
    assert (client.length("prototypes"), client.length("counts")) == (15, 3)


def test_a_client_without_test_rows_has_no_score(tmp_path: Path) -> None:
    here = context(tmp_path, [1.0], [0])
    here.task.split.own_test[0] = np.arange(0)
    received = [np.ones((2, 1), np.float32), np.ones(2, np.float32)]
    scored = FedTgpClient(here, FedTgpParams()).evaluate(received, {})
    assert scored == (0.0, 0, {"correct": 0, "head-correct": 0})


def test_one_known_prototype_is_the_nearest_to_everything(tmp_path: Path) -> None:
    """The head says class 0 to both rows of class 1, of which alone there is a prototype."""
    here = context(tmp_path, [1.0, 2.0], [1, 1], start=[1, 1, 0])
    assert evaluate(here, [0, 9], [0, 1]) == {"correct": 2, "head-correct": 0}


def test_means_of_features_are_summed_in_float64() -> None:
    """In float32, 2^24 + 1 is 2^24; the mean of 2^24, 1 and 1 is (2^24 + 2)/3 = 5592406."""
    features = np.array([[2.0**24], [1.0], [1.0]], np.float32)
    assert class_means(features, np.zeros(3, int), 1)[0].tolist() == [[5592406.0]]
